"""Session: sets up Spark for this source, and registers the source.

These settings are made unless ``spark-submit``, ``spark-defaults.conf`` or the call sets them:

=============================================  ============  ===========================================================
setting                                        value         why
=============================================  ============  ===========================================================
spark.sql.session.timeZone                     UTC           times come out as they went in, on any machine
spark.sql.execution.arrow.pyspark.enabled      true          conversion to pandas and back without an object per value
=============================================  ============  ===========================================================

With a local master, these settings are made, too:

=============================================  ============  ===========================================================
setting                                        value         why
=============================================  ============  ===========================================================
spark.sql.shuffle.partitions                   cores         200 tasks on two cores would mostly be overhead
spark.python.unix.domain.socket.enabled        true          a Python task starts in half the time
spark.driver.host, spark.driver.bindAddress    127.0.0.1     no other host can connect
spark.ui.enabled                               false         the same, and Spark starts a second faster
=============================================  ============  ===========================================================

Unix sockets stay off if the path of a socket would be longer than the kernel allows (107 bytes), as below a deep
``java.io.tmpdir``. This directory is not known for other machines, so a cluster keeps TCP.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from rmqclient.errors import SparkUnavailable
from rmqclient.spark.java import java_home
from rmqclient.spark.python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value: TypeAlias = str | int | float | bool

_EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
_GIVEN_BY_SPARK = {
    "SPARK_AUTH_SOCKET_TIMEOUT": "",
    "SPARK_BUFFER_SIZE": "",
    "SPARK_LOCAL_DIRS": "",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",  # releases without this name leave it as it is
}
"""Variables that Spark sets in the environment of a source when a query starts."""

_SOCKET_DIRECTORY = "spark.python.unix.domain.socket.dir"
_LONGEST_SOCKET_PATH = 107
_SOCKET_NAME = len("/.01234567-89ab-cdef-0123-456789abcdef.sock")
_LOCAL_MASTER = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?|local-cluster\[(\d+),(\d+),\d+\]")


def session(master: str | None = None, app_name: str | None = None, **conf: Value) -> SparkSession:
    """Return a session that knows the source ``rmq``: the running session, or a new one set up as the module says.

    ``master`` is ``local[*]`` unless ``spark-submit`` or a configuration file says otherwise. Settings in ``conf``
    override all others: ``session(**{"spark.driver.memory": "4g"})``. A running session keeps its own settings, except
    for those in ``conf`` that can still be changed.

    Raises SparkUnavailable if pyspark, pyarrow or a Java of version 17 or newer is not installed.
    """
    check_installed()
    from pyspark.sql import SparkSession

    given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in conf.items()}
    given |= {"spark.master": master} if master else {}
    given |= {"spark.app.name": app_name} if app_name else {}
    builder = SparkSession.builder
    for name, value in given.items() if _is_there() else _settings(given):
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Register the source ``rmq`` with a session that the application made itself. Raises SparkUnavailable."""
    check_installed()
    from rmqclient.spark.source import RmqDataSource

    with _names_of_the_environment(spark):
        spark.dataSource.register(RmqDataSource)


def check_installed() -> None:
    """Raise SparkUnavailable if pyspark or pyarrow is not installed."""
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkUnavailable(f"{' and '.join(missing)} not installed: pip install 'rmqclient[spark]'")


def _is_there() -> bool:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        SparkSession.active()
    except PySparkRuntimeError:
        return False
    return True


def _settings(given: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return every setting of a new session. This starts Java: Spark only then tells which settings exist already."""
    from pyspark import SparkConf, SparkContext

    with _environment_of_java(given):
        temporary = SparkContext.getSystemProperty("java.io.tmpdir")
    conf = SparkConf()
    for name, value in given.items():
        conf.set(name, value)
    cores = local_cores(conf.get("spark.master", "local[*]"))
    tuning = dict(_EVERYWHERE)
    if cores is not None:
        os.environ.setdefault("PYSPARK_PYTHON", worker_python())  # executors on other hosts have their own
        sockets = takes_sockets(conf.get(_SOCKET_DIRECTORY, temporary))
        tuning |= _LOCAL
        tuning["spark.sql.shuffle.partitions"] = str(cores)
        tuning["spark.python.unix.domain.socket.enabled"] = str(sockets).lower()
    for name, value in tuning.items():
        conf.setIfMissing(name, value)
    return conf.getAll()


def local_cores(master: str) -> int | None:
    """Return the number of tasks that a master on this machine runs at once; None for a cluster."""
    found = _LOCAL_MASTER.fullmatch(master)
    if found is None:
        return None
    threads, executors, cores = found.groups()
    if executors:
        return int(executors) * int(cores)
    return len(os.sched_getaffinity(0)) if threads == "*" else int(threads or 1)


def takes_sockets(directory: str) -> bool:
    """Return whether the paths of Spark's sockets in a directory are short enough for the kernel."""
    return len(os.fsencode(directory)) + _SOCKET_NAME <= _LONGEST_SOCKET_PATH


@contextmanager
def _names_of_the_environment(spark: SparkSession) -> Iterator[None]:
    """Make Spark keep the environment of what is registered inside this context with all its names from the start.

    It is a ``HashMap`` that all queries of a session share, and each query that starts puts the values of these names
    into it (``PythonStreamingSourceRunner.init``). Two threads that add one name at once leave a map whose size is not
    the number of its entries, and no task of the session can be read any more. To replace a value is harmless.
    """
    from pyspark.sql import SparkSession

    if not isinstance(spark, SparkSession):  # Spark Connect: the map is made by the server
        yield
        return
    environment = spark.sparkContext.environment
    added = {name: value for name, value in _GIVEN_BY_SPARK.items() if name not in environment}
    environment.update(added)
    try:
        yield
    finally:
        for name in added:
            del environment[name]


@contextmanager
def _environment_of_java(given: Mapping[str, str]) -> Iterator[None]:
    """Make Spark start the right Java inside this context, with the settings that only count at its start.

    Memory is such a setting. Under ``spark-submit`` Java runs already, and nothing changes.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        yield
        return
    settings = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(), **given}
    options = shlex.join(part for name, value in settings.items() for part in ("--conf", f"{name}={value}"))
    changed = {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_SUBMIT_ARGS": f"{options} {os.environ.get('PYSPARK_SUBMIT_ARGS', 'pyspark-shell')}",
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", worker_python()),  # Java asks this interpreter about sources
    }
    before = {name: os.environ[name] for name in changed if name in os.environ}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name in changed.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
