"""Held pulls: pulls at the end of their queues, answered when a matching message comes or at their time-out.

RocketMQ's broker checks time-outs every five seconds (PullRequestHoldService); here each pull has a timer. A message
that does not match moves the pull's offset and leaves it waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final

from rmqclient.broker.pulling.arrivals import Arrivals
from rmqclient.broker.pulling.pull import Pull
from rmqclient.broker.pulling.queue_reader import QueueReader
from rmqclient.broker.request import Peer
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.runtime.arrivals import NOT_SEEN, Seen
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

LONGEST_WAIT_S: Final = 120.0
"""Seconds for which a pull waits, at most, whatever its ``suspendTimeoutMillis``: then its connection would be idle."""

_A_HAIR_S: Final = 0.002
"""Seconds added to a pull's time-out: a client that measures in whole ms must not find the answer early."""

_AT_ONCE: Final = 64
"""Pulls checked in one turn of the loop, at most; other requests come between."""

_ASK_AGAIN_S: Final = 0.2
"""Seconds between two checks whether a pull's client may have the queue now."""


class HeldPulls:
    """The held pulls of all connections. For the thread of the loop; ``arrivals`` is closed at the end.

    ``look_again`` returns the answer to a held pull; None, after moving its position, if it must wait longer.
    ``give_up`` returns the answer to one that timed out.
    """

    def __init__(
        self,
        store: MessageStore,
        reader: QueueReader,
        look_again: Callable[[Pull], Frame | None],
        give_up: Callable[[Pull], Frame],
        most: int,
    ) -> None:
        self._reader = reader
        self._look_again = look_again
        self._give_up = give_up
        self._most = most
        self.arrivals = Arrivals(store, self._look_around)
        self._by_queue: dict[MessageQueue, dict[Pull, asyncio.TimerHandle]] = {}
        self._seen: dict[MessageQueue, Seen] = {}
        """State of the queue of each pull, at the last check of all its pulls."""
        self._by_peer: dict[Peer, set[Pull]] = {}
        self._not_allowed: set[Pull] = set()
        self._due: dict[Pull, None] = {}
        self._asks = False
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether the limit of held pulls is reached."""
        return self.count >= self._most

    def hold(self, pull: Pull) -> Frame | None:
        """Hold a pull, unless a message has come since its look: then return the answer."""
        self.arrivals.arm(pull.queue)
        answer = None
        if pull.is_allowed and self._reader.end(pull.queue) > pull.position:
            answer = self._look_again(pull)
        if answer is None and pull.request.peer.is_open:  # a client that waited for a heartbeat may have gone
            self._add(pull)
        return answer

    def look_at(self, group: str, queue: MessageQueue) -> None:
        """Check the pulls of a group whose clients did not have the queue, and may have it now."""
        for pull in list(self._by_queue.get(queue, ())):
            if pull.group == group and not pull.is_allowed:
                asyncio.get_running_loop().call_soon(self._look, pull)

    def drain(self) -> None:
        """Answer every pull as if it had timed out."""
        for pull in [pull for held in self._by_queue.values() for pull in held]:
            self._time_is_up(pull)

    def _add(self, pull: Pull) -> None:
        peer, loop = pull.request.peer, asyncio.get_running_loop()
        timer = loop.call_later(min(pull.wait_s, LONGEST_WAIT_S) + _A_HAIR_S, self._time_is_up, pull)
        self._by_queue.setdefault(pull.queue, {})[pull] = timer
        self._seen.setdefault(pull.queue, NOT_SEEN)
        self.count += 1
        if peer not in self._by_peer:
            self._by_peer[peer] = set()
            peer.when_closed(lambda: self._forget(peer))
        self._by_peer[peer].add(pull)
        if not pull.is_allowed:
            self._ask_later(pull)

    def _remove(self, pull: Pull) -> bool:
        """Remove a pull; False if it was removed before."""
        held = self._by_queue.get(pull.queue, {})
        timer = held.pop(pull, None)
        if timer is None:
            return False
        timer.cancel()
        self.count -= 1
        if not held:
            del self._by_queue[pull.queue]
            del self._seen[pull.queue]
            if not self._by_queue:
                self.arrivals.rest()
        self._by_peer.get(pull.request.peer, set()).discard(pull)
        self._not_allowed.discard(pull)
        return True

    def _forget(self, peer: Peer) -> None:
        """Drop the pulls of a connection that has ended."""
        for pull in list(self._by_peer.pop(peer, ())):
            self._remove(pull)

    def _answer(self, pull: Pull, answer: Frame) -> None:
        if self._remove(pull):
            pull.request.answer(answer)

    def _time_is_up(self, pull: Pull) -> None:
        self._answer(pull, self._give_up(pull))

    def _look_around(self) -> None:
        """Find the pulls whose queues have grown, and start checking them. An unchanged queue costs two reads."""
        was_idle = not self._due
        try:
            for queue in self.arrivals.bell.news(self._seen):
                seen, end = self.arrivals.arm(queue), self._reader.end(queue)  # in this order, or a message is missed
                pulls = self._by_queue[queue]
                self._due.update((pull, None) for pull in pulls if pull.is_allowed and pull.position < end)
                self._seen[queue] = seen
        finally:  # check what is due, or no later arrival would start it
            if was_idle:
                self._look_at_some()

    def _look_at_some(self) -> None:
        for pull in list(islice(self._due, _AT_ONCE)):
            del self._due[pull]
            self._look(pull)
        if self._due:
            asyncio.get_running_loop().call_soon(self._look_at_some)

    def _look(self, pull: Pull) -> None:
        if pull not in self._by_queue.get(pull.queue, {}):
            return
        try:
            answer = self._look_again(pull)
        except Exception as error:  # noqa: BLE001 - the other pulls wait for this turn, too
            _log.exception("a held pull of %s failed", pull.request.peer.remote)
            answer = pull.request.failure(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} {error}")
        if answer is not None:
            self._answer(pull, answer)
        elif not pull.is_allowed:
            self._ask_later(pull)

    def _ask_later(self, pull: Pull) -> None:
        self._not_allowed.add(pull)
        if not self._asks:
            self._asks = True
            asyncio.get_running_loop().call_later(_ASK_AGAIN_S, self._ask_again)

    def _ask_again(self) -> None:
        """Check the pulls whose clients did not have their queues."""
        self._asks = False
        asking, self._not_allowed = self._not_allowed, set()
        for pull in asking:
            self._look(pull)
