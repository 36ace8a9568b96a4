"""RocketMQ's own programs: a name server, a broker, and the small Java program of this directory.

They are real processes on loopback, with free ports, and are killed when their context ends.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from tests.support.lines import Line

TOP = Path(__file__).parents[2]
TARGET = Path(__file__).parent / "target"

STORE_4_9_8 = "store-4.9.8"
"""RocketMQ's store of 4.9.8 alone: no broker of that version was published."""

BROKER_4_9_7 = "broker-4.9.7"
BROKER_5_3_3 = "broker-5.3.3"

_JVM = (
    "-Xms64m",
    "-Xmx320m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # RocketMQ unmaps its files by hand, which Java 17 allows only when told to
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)
_START_S = 90.0
_PROGRAM_S = 180.0

_LOGGING = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <encoder><pattern>%d %p %logger{{0}} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


class RocketMQFailed(Exception):
    """A program of RocketMQ ended or did not get ready; the message has what it printed."""


@dataclass(frozen=True, slots=True)
class Java:
    """What Maven built against one release of RocketMQ. ``home`` is where its logs go."""

    variant: str
    home: Path

    def command(self, main: str, *arguments: object) -> list[str]:
        """Return the command line of a class with a main method."""
        target = TARGET / self.variant
        classpath = f"{target / 'classes'}:{(target / 'classpath').read_text(encoding='utf-8').strip()}"
        homes = (f"-Duser.home={self.home}", f"-Drocketmq.home.dir={self.home}")
        return ["java", *_JVM, *homes, "-cp", classpath, main, *map(str, arguments)]

    def run(self, *arguments: object) -> list[Line]:
        """Run one command of the small program and return its lines. Raises RocketMQFailed."""
        command = self.command("interop.Interop", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_S, check=False)
        lines: list[Line] = [orjson.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not lines or lines[-1]["kind"] != "done":
            raise RocketMQFailed(f"{arguments[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr}")
        return lines[:-1]


def conf_of(root: Path) -> str:
    """Return what ``rmq store broker-conf`` prints."""
    command = [sys.executable, "-m", "rmqclient.workers", "store", "broker-conf", str(root)]
    return subprocess.run(command, cwd=TOP, check=True, capture_output=True, text=True, timeout=30).stdout


@dataclass(slots=True)
class Broker:
    """A running broker, with its name server."""

    java: Java
    name_server: str
    process: subprocess.Popen[bytes]

    def run(self, command: str, *arguments: object) -> list[Line]:
        """Run a command of the small program that talks to this broker."""
        return self.java.run(command, self.name_server, *arguments)

    def stop(self) -> None:
        """Shut down in an orderly way: the store is left without ``abort``."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(_START_S)

    def kill(self) -> None:
        """Kill at once: the store is left as it is."""
        self.process.kill()
        self.process.wait()


@contextmanager
def broker(java: Java, conf: str) -> Iterator[Broker]:
    """Run a name server and a broker with these lines as its ``broker.conf``; only its ports are changed.

    Raises RocketMQFailed when it does not get ready.
    """
    java.home.mkdir(exist_ok=True)
    _write_logging(java.home)
    name_server_port, port = _free_port(), _free_broker_port()
    name_server = f"127.0.0.1:{name_server_port}"
    # 4.9 has no setting for the address that it listens on
    _write(java.home / "namesrv.conf", f"listenPort={name_server_port}\nbindAddress=127.0.0.1\n")
    ports = f"listenPort={port}\nhaListenPort={port + 1}\nbindAddress=127.0.0.1\n"
    _write(java.home / "broker.conf", f"{conf}{ports}")
    with ExitStack() as stack:
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        _started(stack, java, "namesrv", java.command(main, "-c", java.home / "namesrv.conf"))
        main = "org.apache.rocketmq.broker.BrokerStartup"
        command = java.command(main, "-n", name_server, "-c", java.home / "broker.conf")
        started = Broker(java, name_server, _started(stack, java, "broker", command))
        _wait_for_route(started)
        yield started


def _started(stack: ExitStack, java: Java, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    printed = java.home / f"{name}.out"
    with printed.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=_environment(java.home))
    stack.callback(_end, process)
    deadline = time.monotonic() + _START_S
    while b"boot success" not in printed.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RocketMQFailed(f"{name} did not start:\n{printed.read_text(encoding='utf-8', errors='replace')}")
        time.sleep(0.05)
    return process


def _wait_for_route(broker: Broker) -> None:
    """Wait until the name server knows the broker. "boot success" comes first: 5.3.3 registers seconds after it."""
    left_s = int(_START_S)
    try:
        broker.run("await-route", left_s)
    except RocketMQFailed as error:
        raise RocketMQFailed(f"the broker did not register within {left_s} s: {error}") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "ROCKETMQ_HOME": str(home), "HOME": str(home)}


def _write_logging(home: Path) -> None:
    (home / "conf").mkdir(exist_ok=True)
    for name in ("namesrv", "broker"):
        _write(home / "conf" / f"logback_{name}.xml", _LOGGING.format(log=home / f"{name}.log"))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def _free_broker_port() -> int:
    """A broker also listens two ports below and one above; outside of the range that the kernel gives away."""
    while True:
        port = random.randrange(20_000, 30_000)
        if all(_is_free(other) for other in (port - 2, port, port + 1)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as listening:
        try:
            listening.bind(("", port))
        except OSError:
            return False
        return True
