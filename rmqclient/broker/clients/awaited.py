"""Awaited: missing topics whose routes connections have asked for.

A consumer of such a topic sends no heartbeat before it has a route of any topic. So the connection is remembered, and
the consumer begins at the first message once the topic is made (:mod:`rmqclient.broker.groups.offsets`). Beyond the
limits nothing is remembered: the consumer then begins as if it had come after the topic was made.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.request import Peer

REMEMBERED_S: Final = 65.0
"""Seconds for which a route request counts. Clients ask every 30 s. [ClientConfig.pollNameServerInterval]"""

MOST_OF_ONE: Final = 256
"""Topics remembered for one connection, at most."""


class Awaited:
    """Topics that connections wait for; at most ``most`` of all together. For the thread of the event loop."""

    def __init__(self, most: int, counters: Counters, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._counters = counters
        self._clock = clock
        self._asked: dict[Peer, dict[str, float]] = {}
        """When each connection last asked for each topic; both levels are in the order of these times."""
        self._watched: set[Peer] = set()
        self.count = 0

    def note(self, peer: Peer, topic: str) -> None:
        """Note that a connection has asked for the route of a missing topic, within the limits."""
        now = self._clock()
        topics = self._asked.get(peer, {})
        had = len(topics)
        topics.pop(topic, None)
        _forget_old(topics, now)
        self.count -= had - len(topics)
        if self._has_room(peer, topics, now):
            topics[topic] = now
            self.count += 1
            self._asked.pop(peer, None)
            self._asked[peer] = topics
            self._watch(peer)

    def awaits(self, peer: Peer, topic: str) -> bool:
        """Return whether a connection asked for a topic before it was made."""
        return self._clock() < self._asked.get(peer, {}).get(topic, -math.inf) + REMEMBERED_S

    def _has_room(self, peer: Peer, topics: dict[str, float], now: float) -> bool:
        if self.count >= self._most:
            self._forget_silent(now)
        if len(topics) < MOST_OF_ONE and self.count < self._most:
            return True
        text = f"client {peer.remote} waits for a topic more, which is not remembered"
        limits = f"it has {len(topics):,} of {MOST_OF_ONE:,}, all clients {self.count:,} of {self._most:,}"
        self._counters.refuse(Refusal.AWAITED, f"{text}: {limits}")
        return False

    def _forget_silent(self, now: float) -> None:
        """Drop connections whose route requests have all expired."""
        while self._asked:
            peer, topics = next(iter(self._asked.items()))
            if next(reversed(topics.values()), -math.inf) + REMEMBERED_S > now:
                return
            self._forget(peer)

    def _watch(self, peer: Peer) -> None:
        if peer not in self._watched:
            self._watched.add(peer)
            peer.when_closed(partial(self._close, peer))

    def _close(self, peer: Peer) -> None:
        self._watched.discard(peer)
        self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        self.count -= len(self._asked.pop(peer, {}))


def _forget_old(topics: dict[str, float], now: float) -> None:
    while topics:
        topic, asked_at = next(iter(topics.items()))
        if asked_at + REMEMBERED_S > now:
            return
        del topics[topic]
