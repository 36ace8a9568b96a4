"""Bell: how a thread sleeps until there is something to look at, and how others wake it.

A bell is a futex word of the runtime file. Each ring adds 1 to the word and wakes every thread that sleeps on it. Where
rings come every few microseconds, a thread looks for the next one before it sleeps (docs/decisions/0029). A
thread notes how often the bell rang, then looks, then sleeps unless the bell rang meanwhile, so no ring is missed::

    heard = bell.arm(queue)
    if not look():
        bell.wait(heard, LONGEST_SLEEP_S)

Messages ring bells of their own kind. There are 64 *arrival lanes*, one word each, and each queue has one bit for each
lane. ``arm`` sets the bit of a queue; the next sender to this queue takes all bits, clears them, and rings their lanes.
So ``arm`` comes before each look, not only before the first. Threads of any process may share a lane: a thread that is
woken for another one looks once in vain.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from rmqclient.store import layout
from rmqclient.store.kernel._kernel import Words
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.shared_state import SharedState, arrival_lane_at, queue_slot_at

LONGEST_SLEEP_S = 0.5
"""A sender that is killed after it has published a message and before it rings leaves the sleepers asleep. So every
thread that waits for messages looks again after this time."""

Seen: TypeAlias = tuple[int, int]
"""Where the slot of a queue is, and the queue offset of its next message as it was seen."""

NOT_SEEN: Final[Seen] = (-1, -1)
"""Of a queue that has to be looked at in any case."""

_MAX_OFFSET = layout.QUEUE_SLOT.at["max_offset"]
_WAITING_LANES = layout.QUEUE_SLOT.at["waiting_lanes"]
_FOLLOWING_LANES = layout.RUNTIME_HEADER.at["following_lanes"]


class Bell:
    """A word of the runtime file that threads of all processes sleep on. Safe for threads."""

    def __init__(self, words: Words, at: int) -> None:
        self._words = words
        self._at = at

    def heard(self) -> int:
        """Return a number that changes at each ring, for :meth:`wait`."""
        return self._words.load32(self._at)

    def wait(self, heard: int, timeout_s: float) -> None:
        """Sleep until the bell rings, at most ``timeout_s`` seconds; return at once if it rang since ``heard``.

        Another reason may end the sleep early: look again afterwards.
        """
        if timeout_s > 0:
            self._words.wait_adaptively(self._at, heard, timeout_s * 1000)

    def ring(self) -> None:
        """Wake every thread that sleeps on this bell."""
        self._words.signal(self._at)


class ArrivalBell(Bell):
    """A bell that senders ring, on one arrival lane: a random one, unless the caller names it (0 to 63).

    ``slot_of`` returns the slot of a queue in the queue table. It raises UnknownTopic.
    """

    def __init__(self, state: SharedState, slot_of: Callable[[MessageQueue], int], lane: int | None = None) -> None:
        self.lane = secrets.randbelow(layout.ARRIVAL_LANES) if lane is None else lane
        super().__init__(state.words, arrival_lane_at(self.lane))
        self._slot_of = slot_of

    def arm(self, *queues: MessageQueue) -> int:
        """Ask the next sender to each of these queues to ring; return :meth:`heard`. Raises UnknownTopic."""
        heard = self.heard()
        for queue in queues:
            self._words.set_bits(queue_slot_at(self._slot_of(queue)) + _WAITING_LANES, 1 << self.lane)
        return heard

    def look(self, queue: MessageQueue) -> Seen:
        """Return what :meth:`news` compares a queue with. Raises UnknownTopic."""
        at = queue_slot_at(self._slot_of(queue))
        return at, self._words.load(at + _MAX_OFFSET)

    def news(self, seen: Mapping[MessageQueue, Seen]) -> list[MessageQueue]:
        """Return the queues at which something has happened since they were armed and then looked at.

        That is a message, or a sender that took this bell and has still to ring it, or never will. Either alone could
        be missed: another thread that sleeps on this lane may have armed the queue again.
        """
        load, bell = self._words.load, 1 << self.lane
        return [
            queue
            for queue, (at, end) in seen.items()
            if at < 0 or load(at + _MAX_OFFSET) != end or not load(at + _WAITING_LANES) & bell
        ]

    def arm_log(self) -> int:
        """Ask the next sender to any queue to ring; return :meth:`heard`."""
        heard = self.heard()
        self._words.set_bits(_FOLLOWING_LANES, 1 << self.lane)
        return heard
