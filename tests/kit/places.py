"""Places where an application is tried: the kit, and workers of ``rmq run`` at a store with a clock for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from rmqclient import Message, Producer
from rmqclient.failures import dead_letters
from rmqclient.failures.dead_letters import Selection
from rmqclient.store import clock, open_store
from rmqclient.testing import Kit
from rmqclient.testing.sent import messages
from tests.client.conftest import wait_for

REPOSITORY = Path(__file__).parents[2]
APP = Path(__file__).parent / "apps" / "behaving.py"
LONG_S = 60.0
_STILL = 30
"""Looks in a row."""
_CHANGING = ("committed_offset", "handled", "failed", "flow_control", "held_attempts")


class Place(Protocol):
    """What a test does, the same at both places."""

    root: Path
    ticks_at_the_start: int

    def send(self, topic: str, body: object, **options: Any) -> None: ...
    def request(self, topic: str, body: object) -> bytes: ...
    def advance(self, seconds: float) -> None: ...
    def done(self, by: str, count: int) -> list[Any]: ...
    def given_up(self, group: str, count: int) -> list[tuple[bytes, int]]: ...


class InKit:
    """The kit."""

    ticks_at_the_start = 1  # a test begins when its kit does, and the clock has passed a minute since

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self.root = kit.root
        _begin_a_minute()

    def send(self, topic: str, body: object, **options: Any) -> None:
        self._kit.send(topic, body, **options)
        self._kit.drain(raises=False)

    def request(self, topic: str, body: object) -> bytes:
        return self._kit.request(topic, body).body

    def advance(self, seconds: float) -> None:
        self._kit.advance(seconds=seconds)
        self._kit.drain(raises=False)

    def done(self, by: str, count: int) -> list[Any]:  # noqa: ARG002 - all is there
        return [json.loads(each.body) for each in self._kit.sent("done", {"by": by})]

    def given_up(self, group: str, count: int) -> list[tuple[bytes, int]]:  # noqa: ARG002 - all is there
        return [(letter.message.body, letter.attempts) for letter in self._kit.dead_letters(group)]


class UnderRun:
    """Workers of ``rmq run``, which nobody holds: what is awaited is looked for until it is there."""

    ticks_at_the_start = 2  # those within the grace before the start

    def __init__(self, root: Path) -> None:
        self.root = root
        self._store = open_store(root)
        _begin_a_minute()
        self._producer = Producer(self._store)

    def send(
        self, topic: str, body: object, *, tags: str | None = None, sharding_key: str | None = None, **wait: Any
    ) -> None:
        self._producer.send(Message(topic, body, tags=tags), sharding_key, **wait)

    def request(self, topic: str, body: object) -> bytes:
        return self._producer.request(Message(topic, body), LONG_S).body

    def advance(self, seconds: float) -> None:
        self._settle()
        clock.advance(timedelta(seconds=seconds))
        wait_for(
            lambda: not (self._store.schedule.has_due() or self._store.timer.has_due()), "what is due", timeout_s=LONG_S
        )
        self._store.transactions.check()

    def done(self, by: str, count: int) -> list[Any]:
        def found() -> list[Any]:
            bodies = (json.loads(each.body) for each in messages(self._store, "done"))
            return [body for body in bodies if body["by"] == by]

        wait_for(lambda: len(found()) >= count, f"{count} of {by}", timeout_s=LONG_S)
        return found()

    def given_up(self, group: str, count: int) -> list[tuple[bytes, int]]:
        def found() -> list[tuple[bytes, int]]:
            letters = dead_letters.select(self._store, group, Selection(done=True))
            return [(letter.message.body, letter.attempts) for letter in letters]

        wait_for(lambda: len(found()) >= count, f"{count} dead letters of {group}", timeout_s=LONG_S)
        return found()

    def close(self) -> None:
        self._producer.close()
        self._store.close()

    def _settle(self) -> None:
        """Wait until nothing changes any more: a message that failed is put back a moment after its handler said so."""
        seen: list[tuple[int, ...]] = []

        def is_still() -> bool:
            seen.append(tuple(slot.load(name) for slot in self._store.groups for name in _CHANGING))
            return len(seen) > _STILL and len(set(seen[-_STILL:])) == 1

        wait_for(is_still, "an end of all work", timeout_s=LONG_S)


@contextmanager
def under_run(root: Path) -> Iterator[UnderRun]:
    """Start two workers at a store with a clock for tests."""
    root.mkdir()
    clock.make(root)
    place = UnderRun(root)
    command = [sys.executable, "-m", "rmqclient.workers", "run", f"{APP}:app", "--processes", "2"]
    environment = {**os.environ, "RMQ_STORE": str(root), "PYTHONPATH": str(REPOSITORY)}
    with (root.parent / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=root.parent, env=environment, stdout=log, stderr=log)
    try:
        yield place
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(LONG_S)
        place.close()


def _begin_a_minute() -> None:
    """Move the clock behind the start of a minute. It runs on, and would meet the next one in the middle of a test."""
    clock.advance(timedelta(milliseconds=61_000 - clock.wall_ms() % 60_000))
