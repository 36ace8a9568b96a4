"""The session: what it sets, what it leaves to others, and the source that it knows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqclient.spark import register, session
from tests.support.java import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = (
    "spark.master",
    "spark.app.name",
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
    "spark.python.unix.domain.socket.enabled",
    "spark.driver.host",
    "spark.sql.ansi.enabled",
)

CHILD = """
import json, sys
from rmqclient.spark import session

spark = session(**json.loads(sys.argv[1]))
plus_one = spark.range(3).rdd.map(lambda row: row.id + 1).collect()
memory = spark._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
print(json.dumps([plus_one, memory, {name: spark.conf.get(name) for name in json.loads(sys.argv[2])}]))
"""


def test_the_session_is_tuned_for_this_machine(spark: SparkSession) -> None:
    for name, value in {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }.items():
        assert (name, spark.conf.get(name)) == (name, value)


def test_a_session_that_is_there_is_taken_and_keeps_its_settings(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        assert session(**{"spark.sql.caseSensitive": "true"}) is spark
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
        assert spark.conf.get("spark.sql.caseSensitive") == "true"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.unset("spark.sql.caseSensitive")


def test_the_source_is_known_and_may_be_registered_again(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(Exception, match=r"(?i)subscribe"):
        spark.read.format("rmq").load("nowhere").count()


@pytest.mark.slow
def test_what_was_set_elsewhere_stays_and_what_the_call_says_goes_before_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a configuration file, options as of spark-submit, and a temporary directory too deep for a socket
    deep = tmp_path / "/".join(["deep"] * 15)
    deep.mkdir(parents=True)
    defaults = "spark.sql.session.timeZone Asia/Tokyo\nspark.sql.shuffle.partitions 7\nspark.log.level ERROR\n"
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master local[1] --conf spark.sql.ansi.enabled=false pyspark-shell")
    conf = {
        "app_name": "a child",
        "spark.sql.shuffle.partitions": 3,
        "spark.driver.memory": "600m",
        "spark.driver.extraJavaOptions": f"{QUICK_JAVA} -Djava.io.tmpdir={deep}",
    }

    # When a session is made
    command = [sys.executable, "-c", CHILD, json.dumps(conf), json.dumps(SETTINGS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    plus_one, memory, found = json.loads(done.stdout)

    # Then each has its say, in this order: the call, spark-submit and the file, this package; and Python workers run
    assert found == {
        "spark.master": "local[1]",
        "spark.app.name": "a child",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.shuffle.partitions": "3",
        "spark.python.unix.domain.socket.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.ansi.enabled": "false",
    }
    assert plus_one == [1, 2, 3]
    assert 500 < memory < 700


@pytest.mark.slow
def test_a_cluster_keeps_its_own_network_and_its_own_python(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a configuration file that names a cluster, which is not asked for anything here
    (tmp_path / "spark-defaults.conf").write_text("spark.master spark://elsewhere:7077\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_PYTHON")
    child = (
        "import json, os; from rmqclient.spark.session import _settings;"
        "print(json.dumps([dict(_settings({})), os.environ.get('PYSPARK_PYTHON')]))"
    )
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr

    # Then what suits one machine is not set
    settings, python = json.loads(done.stdout)
    assert settings["spark.master"] == "spark://elsewhere:7077"
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert python is None
    for name in ("driver.host", "driver.bindAddress", "python.unix.domain.socket.enabled", "sql.shuffle.partitions"):
        assert f"spark.{name}" not in settings
