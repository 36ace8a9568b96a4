"""Kafka: a broker of one node on loopback, the jars with which Spark reads it, and Kafka's tools, all from Maven.

The broker has its default settings except for the number of partitions, for settings that one node cannot satisfy, and
for longer timeouts on a busy machine.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rmqclient.spark.java import java_home

_POM = Path(__file__).with_suffix(".xml")
_START_S = 60.0
_STOP_S = 30.0
_MAVEN_S = 600.0
_TOOL_S = 300.0
_LOG_TAIL = 4_000
_HEAP = "-Xmx1g"
_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"

# The broker is killed when this program ends, in whatever way: `read` returns when the pipe's other end is closed.
_WHILE_WE_LIVE = '"$@" & read line; kill -9 $!; wait $!'

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
log.dirs={logs}
num.partitions={partitions}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
broker.session.timeout.ms=60000
group.initial.rebalance.delay.ms=0
"""


class Jars(NamedTuple):
    """The jars that Maven has fetched."""

    broker: str
    """A class path."""
    connector: str
    """The jars for Spark, as ``spark.jars`` takes them."""


class Kafka(NamedTuple):
    """A running broker."""

    servers: str
    files: Path
    """The directory of its log."""
    connector: str
    """As in :class:`Jars`."""
    pid: int
    """Of the parent of its process."""
    begun_ns: int
    """When it was started, of CLOCK_MONOTONIC."""


class KafkaUnavailable(Exception):
    """Kafka is not available here; the message has the reason."""


def fetch(directory: Path) -> Jars:
    """Fetch the jars by Maven unless they are there. Raises KafkaUnavailable."""
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("there is no Maven (mvn)")
    return Jars(_class_path("broker", directory), _class_path("connector", directory).replace(":", ","))


def fetch_broker(directory: Path) -> Jars:
    """Fetch a broker by Maven; return its class path. Raises KafkaUnavailable."""
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("there is no Maven (mvn)")
    return Jars(_class_path("broker", directory), "")


def fetch_tools(directory: Path) -> Jars:
    """Fetch a broker and Kafka's tools by Maven; return the class path of both. Raises KafkaUnavailable."""
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("there is no Maven (mvn)")
    return Jars(f"{_class_path('broker', directory)}:{_class_path('tools', directory)}", "")


def tool(jars: Jars, name: str, *arguments: str) -> str:
    """Run one of Kafka's tools; return its output. Raises subprocess.CalledProcessError."""
    command = [str(java_home() / "bin" / "java"), _HEAP, _LOG_LEVEL, "-cp", jars.broker, name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TOOL_S)
    if done.returncode:
        print(done.stdout[-_LOG_TAIL:], done.stderr[-_LOG_TAIL:], file=sys.stderr)
        done.check_returncode()
    return done.stdout


@contextmanager
def broker(directory: Path, jars: Jars, partitions: int) -> Iterator[Kafka]:
    """Start a broker whose topics have ``partitions`` partitions, and stop it at the end."""
    logs, properties = directory / "kafka-logs", directory / "server.properties"
    port, controller = _free_ports()
    text = _PROPERTIES.format(broker=port, controller=controller, logs=logs, partitions=partitions)
    properties.write_text(text, encoding="utf-8")
    java = [str(java_home() / "bin" / "java"), _HEAP, _LOG_LEVEL, "-cp", jars.broker]
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    format_logs = [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(properties)]
    subprocess.run(format_logs, check=True, stdout=subprocess.DEVNULL)
    begun_ns = time.monotonic_ns()
    with _running([*java, "kafka.Kafka", str(properties)], directory / "kafka.log", port) as pid:
        yield Kafka(f"127.0.0.1:{port}", logs, jars.connector, pid, begun_ns)


def _class_path(profile: str, directory: Path) -> str:
    path = directory / f"{profile}.classpath"
    goal = ["-P", profile, "dependency:build-classpath", "-DincludeScope=runtime", f"-Dmdep.outputFile={path}"]
    maven = ["mvn", "-q", "-B", "-f", str(_POM), *goal]
    done = subprocess.run(maven, capture_output=True, text=True, check=False, timeout=_MAVEN_S)
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr)
        raise KafkaUnavailable(f"Maven could not fetch the jars of its {profile}")
    return path.read_text(encoding="utf-8").strip()


@contextmanager
def _running(command: list[str], log: Path, port: int) -> Iterator[int]:
    with log.open("wb") as output:
        shell = ["sh", "-c", _WHILE_WE_LIVE, "sh", *command]
        process = subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=output, stderr=output)
    try:
        _wait_until_it_answers(port)
        yield process.pid
    except Exception:
        print(log.read_text(errors="replace")[-_LOG_TAIL:], file=sys.stderr)
        raise
    finally:
        process.communicate(timeout=_STOP_S)


def _wait_until_it_answers(port: int) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"Kafka did not answer within {_START_S:.0f} s")


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
