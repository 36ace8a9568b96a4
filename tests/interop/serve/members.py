"""Members of one group in three languages, each a process that prints what it handles, and that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import orjson

from rmqclient.testing import Server
from tests.interop.rocketmq import BROKER_4_9_7, TOP
from tests.interop.serve.programs import READY_S, go, java


class Handled(NamedTuple):
    """A message that a member has handled.

    ``at`` is when, by the member's clock, in seconds since 1970; ``member`` is the number of its life, and ``name`` of
    its kind.
    """

    at: float
    member: int
    name: str
    number: int
    queue_id: int
    queue_offset: int


@dataclass(slots=True)
class Member:
    """A kind of member, through as many lives as it is given."""

    name: str
    command: Sequence[str]
    home: Path
    handled: list[Handled]
    process: subprocess.Popen[str] | None = None
    readers: list[threading.Thread] = field(default_factory=list)
    lives: int = 0

    def start(self, number: int) -> None:
        """Start a new life, with a number that no other life of any member has; return when it is a consumer."""
        self.process = subprocess.Popen(
            self.command,
            cwd=TOP,
            env=os.environ | {"HOME": str(self.home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        ready = threading.Event()
        self.readers.append(threading.Thread(target=self._read, args=(self.process, number, ready), daemon=True))
        self.readers[-1].start()
        self.lives += 1
        assert ready.wait(READY_S), f"the {self.name} member did not start"

    def kill(self) -> None:
        """End it as ``kill -9`` does, and take in what it had printed."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.readers[-1].join(READY_S)
            for pipe in (self.process.stdin, self.process.stdout):
                assert pipe is not None
                pipe.close()

    def _read(self, process: subprocess.Popen[str], number: int, ready: threading.Event) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            if not text.startswith("{") or not text.endswith("\n"):
                continue
            line = orjson.loads(text)
            if line["kind"] == "ready":
                ready.set()
            elif line["kind"] == "message":
                place = line["queue_id"], line["queue_offset"]
                self.handled.append(Handled(line["at_ms"] / 1000, number, self.name, int(line["body"]), *place))


def members(server: Server, group: str, topic: str, directory: Path, handled: list[Handled]) -> list[Member]:
    """Return a member in Java, one in Go, and a local one, none of which is started."""
    local = [sys.executable, "-m", "tests.interop.serve.local_member", str(server.root), group, topic]
    take = ("take", server.address, group, topic, "plain", "")
    return [
        Member("Java", java(BROKER_4_9_7, directory).command(*take), directory, handled),
        Member("Go", go(directory).command(*take), directory, handled),
        Member("local", local, directory, handled),
    ]


def eventually(condition: Callable[[], object], what: str, within_s: float) -> None:
    """Return when ``condition`` is true; fail when the time is up."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)
