"""RocketMQ's own programs: a name server, a broker, and the small Java program of this directory.

They are real processes on loopback, with free ports, and are killed when their context ends.
"""

from __future__ import annotations

import os
import random
import shutil
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

SUITE_4_9_7 = "suite-4.9.7"
"""RocketMQ's own integration tests, with a class of ours that gives them the address of any server."""

SPRING = "spring-2.3.1"
"""RocketMQ's starter for Spring, with its client of 5.3."""

_OPENED = (
    # RocketMQ unmaps its files by hand, which Java 17 allows only when told to
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)
SMALL_JVM = ("-Xms64m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_OPENED)
"""Starts quickly and takes little memory: for tests."""
FAST_JVM = ("-Xms256m", "-Xmx1g", *_OPENED)
"""Compiles as well as it can: for benchmarks."""

START_S = 900.0
"""Within which a server has to be up. One that ends is noticed at once; a JVM takes minutes to start on a host that has
ten times too much to do."""

_PROGRAM_S = START_S + 60.0
"""A program may wait for a server for all of its time."""

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
    jvm: tuple[str, ...] = SMALL_JVM

    def command(self, main: str, *arguments: object) -> list[str]:
        """Return the command line of a class with a main method."""
        target = TARGET / self.variant
        classpath = f"{target / 'classes'}:{(target / 'classpath').read_text(encoding='utf-8').strip()}"
        homes = (f"-Duser.home={self.home}", f"-Drocketmq.home.dir={self.home}")
        return ["java", *self.jvm, *homes, "-cp", classpath, main, *map(str, arguments)]

    def run(self, *arguments: object) -> list[Line]:
        """Run one command of the small program and return its lines. Raises RocketMQFailed."""
        command = self.command("interop.Interop", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_S, check=False)
        lines: list[Line] = [orjson.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not lines or lines[-1]["kind"] != "done":
            raise RocketMQFailed(f"{arguments[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr}")
        return lines[:-1]


def why_not(*variants: str) -> str:
    """Return why RocketMQ cannot be run here; empty if it can."""
    if shutil.which("java") is None:
        return "there is no Java: RocketMQ needs a JDK"
    missing = [variant for variant in variants if not (TARGET / variant / "classpath").exists()]
    return f"{' and '.join(missing)} is not there: `make rocketmq` fetches it" if missing else ""


def conf_of(root: Path) -> str:
    """Return what ``rmq store broker-conf`` prints."""
    command = [sys.executable, "-m", "rmqclient.workers", "store", "broker-conf", str(root)]
    return subprocess.run(command, cwd=TOP, check=True, capture_output=True, text=True, timeout=30).stdout


@dataclass(slots=True)
class Server:
    """A name server or a broker: a Java process that can be killed and started again.

    It ends with the thread that started it. [PR_SET_PDEATHSIG]
    """

    java: Java
    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """Of the process that ended last, negative for a signal; None while it lives."""
        return None if self.process is None else self.process.poll()

    def start(self) -> None:
        """Start, and return when it says that it is up. Raises RocketMQFailed."""
        self.java.home.mkdir(parents=True, exist_ok=True)
        _write_logging(self.java.home)
        printed = self.java.home / f"{self.name}.out"
        with printed.open("ab") as output:
            before = output.tell()
            command = ["setpriv", "--pdeathsig", "KILL", *self.command]
            environment = {**os.environ, "ROCKETMQ_HOME": str(self.java.home), "HOME": str(self.java.home)}
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        deadline = time.monotonic() + START_S
        while b"boot success" not in (said := printed.read_bytes()[before:]):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RocketMQFailed(f"{self.name} did not start:\n{said.decode(errors='replace')}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Shut down in an orderly way: the store of a broker is left without ``abort``."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(START_S)

    def kill(self) -> None:
        """Kill at once: the store of a broker is left as it is."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def freeze(self) -> None:
        """Let it stand still, with its connections open, until :meth:`thaw`."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)


def name_server(java: Java, port: int) -> Server:
    """Return a name server that is not started."""
    java.home.mkdir(parents=True, exist_ok=True)
    conf = java.home / "namesrv.conf"
    # 4.9 has no setting for the address that it listens on
    _write(conf, f"listenPort={port}\nbindAddress=127.0.0.1\n")
    return Server(java, "namesrv", java.command("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", conf))


def broker_server(java: Java, name_servers: str, port: int, conf: str) -> Server:
    """Return a broker that is not started, with these lines as its ``broker.conf``, to which its ports are added."""
    java.home.mkdir(parents=True, exist_ok=True)
    path = java.home / "broker.conf"
    _write(path, f"{conf}listenPort={port}\nhaListenPort={port + 1}\nbindAddress=127.0.0.1\n")
    main = "org.apache.rocketmq.broker.BrokerStartup"
    return Server(java, "broker", java.command(main, "-n", name_servers, "-c", path))


@dataclass(slots=True)
class Broker:
    """A running broker, with its name server."""

    java: Java
    name_server: str
    server: Server

    def run(self, command: str, *arguments: object) -> list[Line]:
        """Run a command of the small program that talks to this broker."""
        return self.java.run(command, self.name_server, *arguments)

    def stop(self) -> None:
        """Shut down in an orderly way: the store is left without ``abort``."""
        self.server.stop()

    def kill(self) -> None:
        """Kill at once: the store is left as it is."""
        self.server.kill()


@contextmanager
def broker(java: Java, conf: str) -> Iterator[Broker]:
    """Run a name server and a broker with these lines as its ``broker.conf``; only its ports are changed.

    Raises RocketMQFailed when it does not get ready.
    """
    port = free_broker_port()
    with ExitStack() as stack:
        names = name_server(java, names_port := free_broker_port())
        address = f"127.0.0.1:{names_port}"
        started = Broker(java, address, broker_server(java, address, port, conf))
        for server in (names, started.server):
            stack.callback(server.kill)
            server.start()
        _wait_for_route(started)
        yield started


def _wait_for_route(broker: Broker) -> None:
    """Wait until the name server knows the broker. "boot success" comes first: 5.3.3 registers seconds after it."""
    left_s = int(START_S)
    try:
        broker.run("await-route", left_s)
    except RocketMQFailed as error:
        raise RocketMQFailed(f"the broker did not register within {left_s} s: {error}") from error


def _write_logging(home: Path) -> None:
    (home / "conf").mkdir(exist_ok=True)
    for name in ("namesrv", "broker"):
        text = _LOGGING.format(log=home / f"{name}.log")
        _write(home / "conf" / f"logback_{name}.xml", text)
        _write(home / "conf" / f"rmq.{name}.logback.xml", text)  # as 5.x names it


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


_given: set[int] = set()
"""Ports of servers of this process, which may not have been started yet."""


def free_broker_port() -> int:
    """A broker also listens two ports below and one above; outside of the range that the kernel gives away."""
    while True:
        port = random.randrange(20_000, 30_000)
        wanted = {port - 2, port, port + 1}
        if wanted.isdisjoint(_given) and all(_is_free(each) for each in wanted):
            _given.update(wanted)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as listening:
        try:
            listening.bind(("", port))
        except OSError:
            return False
        return True
