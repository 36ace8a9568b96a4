"""A Spark standalone cluster on loopback: a master and workers as processes, which end with the context."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from rmqclient.spark.java import java_home
from tests.interop.rocketmq import TOP

START_S = 90.0
"""Within which a process has to be up, on a busy host."""

_HOME = Path(pyspark.__file__).parent
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER = re.compile(r"Successfully registered with master")


@contextmanager
def standalone(scratch: Path, workers: int = 2) -> Iterator[str]:
    """Run a master and workers of one core each; yield the URL of the master."""
    with ExitStack() as stack:
        master = _started(stack, scratch, "master", "master.Master", "--port", "0", "--webui-port", "0")
        url = _awaited(*master, _MASTER)[1]
        options = ("--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g", url)
        running = [_started(stack, scratch, f"worker-{n}", "worker.Worker", *options) for n in range(workers)]
        for worker in running:
            _awaited(*worker, _WORKER)
        yield url


def environment() -> dict[str, str]:
    """Return the environment of all processes: this Python, and this project."""
    path = os.pathsep.join(filter(None, (str(TOP), os.environ.get("PYTHONPATH"))))
    mine = {"JAVA_HOME": str(java_home()), "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    return os.environ | mine | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}


def _started(
    stack: ExitStack, scratch: Path, name: str, kind: str, *options: str
) -> tuple[subprocess.Popen[bytes], Path]:
    log, work = scratch / f"{name}.log", scratch / name
    command = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *options]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment() | {"SPARK_WORKER_DIR": str(work)}, stdout=output, stderr=subprocess.STDOUT
        )
    stack.callback(_end, process)
    return process, log


def _awaited(process: subprocess.Popen[bytes], log: Path, pattern: re.Pattern[str]) -> re.Match[str]:
    """Return what a process says when it is up."""
    deadline = time.monotonic() + START_S
    while (found := pattern.search(text := log.read_text(errors="replace"))) is None:
        assert process.poll() is None, f"it ended with {process.returncode}:\n{text[-3000:]}"
        assert time.monotonic() < deadline, f"it is not up:\n{text[-3000:]}"
        time.sleep(0.05)
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
