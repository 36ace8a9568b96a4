"""The small programs around RocketMQ's own clients in Java and Go: the same commands, and the same lines of JSON.

``src/main/java/interop/Interop.java`` and ``clients/go/program/main.go`` list the commands.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from tests.interop.rocketmq import TOP, Java
from tests.support.lines import Line

GO = Path(__file__).parents[1] / "clients" / "go"
READY_S = 600.0
"""Within which a program has to be a consumer, and to end: minutes on a host with ten times too much work."""
PROGRAM_S = 600.0
BUILD_S = 900.0
"""The first build of the Go client compiles all of it."""


@dataclass(frozen=True, slots=True)
class Program:
    """What runs with a command and its arguments behind ``start``; its logs and offsets are below ``home``."""

    start: tuple[str, ...]
    home: Path

    def command(self, *arguments: object) -> list[str]:
        """Return the whole command line."""
        return [*self.start, *map(str, arguments)]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it runs with."""
        return os.environ | {"HOME": str(self.home)}

    def run(self, *arguments: object) -> list[Line]:
        """Run one command to its end, and return its lines. Fails when it does."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=TOP,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
        lines: list[Line] = [orjson.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        said = f"{arguments[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
        assert done.returncode == 0, said
        assert lines[-1]["kind"] == "done", said
        return lines[:-1]

    @contextmanager
    def started(self, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """Start one command, with pipes as its standard input and output; it is killed at the end of the block."""
        with subprocess.Popen(
            self.command(*arguments),
            cwd=TOP,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def running(self, *arguments: object) -> Iterator[None]:
        """Run one command beside the block; it ends with the block, or is killed."""
        with self.started(*arguments) as process:
            yield
            assert process.wait(READY_S) == 0, f"{arguments[0]} ended with {process.returncode}"


def java(variant: str, home: Path) -> Program:
    """Return the program for a release of the Java client."""
    return Program(tuple(Java(variant, home).command("interop.Interop")), home)


def go(directory: Path) -> Program:
    """Build the program in Go below a directory, and return it."""
    source = shutil.copytree(GO, directory / "go")
    subprocess.run(["go", "build", "-o", "built", "./program"], cwd=source, timeout=BUILD_S, check=True)
    return Program((str(source / "built"),), directory)


@dataclass(slots=True)
class Taker:
    """A consumer that runs, and the messages that it has printed."""

    messages: list[Line] = field(default_factory=list)
    ready: threading.Event = field(default_factory=threading.Event)

    @property
    def bodies(self) -> list[str]:
        """The bodies of the messages that it got."""
        return [line["body"] for line in self.messages]

    @property
    def queues(self) -> set[int]:
        """The queues that it got messages from."""
        return {line["queue_id"] for line in self.messages}


@contextmanager
def taker(program: Program, *arguments: object) -> Iterator[Taker]:
    """Run ``take`` with these arguments until the end of the block; the consumer then leaves its group in order."""
    found = Taker()
    with program.started("take", *arguments) as process:
        reader = threading.Thread(target=_read, args=(process, found), daemon=True)
        reader.start()
        assert found.ready.wait(READY_S), f"the consumer did not start: {arguments}"
        yield found
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(READY_S) == 0
        reader.join(READY_S)


def _read(process: subprocess.Popen[str], found: Taker) -> None:
    assert process.stdout is not None
    for text in process.stdout:
        if text.startswith("{"):
            line = orjson.loads(text)
            if line["kind"] == "ready":
                found.ready.set()
            elif line["kind"] == "message":
                found.messages.append(line)
