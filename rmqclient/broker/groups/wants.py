"""Wants: the members that ask for a queue which somebody else has, or which is kept for somebody else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from rmqclient.broker.clients.consumer import Consumer
from rmqclient.store import MessageQueue

WANTED_S = 65.0
"""A member that has not asked again for so long does not want the queue any more; a pull is held for 30 s at most."""

Key = tuple[str, MessageQueue]
"""A group and a queue."""


@dataclass(slots=True)
class Want:
    """A member that asks for a queue in vain. Times are monotonic seconds."""

    since: float
    last: float
    locks: bool
    """Whether it asks for the lock, and has to be told when it may try again."""


class Wants:
    """Who wants which queue. For the thread of the event loop."""

    def __init__(self) -> None:
        self._wants: dict[Key, dict[Consumer, Want]] = {}

    def note(self, key: Key, consumer: Consumer, *, locks: bool) -> Want:
        """Note that a member asks for a queue now."""
        now = time.monotonic()
        want = self._wants.setdefault(key, {}).setdefault(consumer, Want(now, now, locks))
        want.last = now
        return want

    def drop(self, key: Key, consumer: Consumer) -> None:
        """Forget that a member wants a queue."""
        wants = self._wants.get(key, {})
        wants.pop(consumer, None)
        if not wants:
            self._wants.pop(key, None)

    def forget(self, consumer: Consumer) -> None:
        """Forget all that a member wants."""
        for key in [key for key, wants in self._wants.items() if consumer in wants]:
            self.drop(key, consumer)

    def end_old(self) -> None:
        """Forget those that have not asked again."""
        oldest = time.monotonic() - WANTED_S
        old = [(key, who) for key, wants in self._wants.items() for who, want in wants.items() if want.last < oldest]
        for key, consumer in old:
            self.drop(key, consumer)

    def of(self, key: Key) -> dict[Consumer, Want]:
        """Return the members that want a queue."""
        return dict(self._wants.get(key, {}))

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._wants))
