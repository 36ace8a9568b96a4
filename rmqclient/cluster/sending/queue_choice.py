"""Queue choice: the queue for the next message of a topic.

Queues are ordered by ``MessageQueue.sort_key``. Without a sharding key they take turns; a queue on an avoided broker is
skipped while there are others. A sharding key always has the same queue of the same list (SelectMessageQueueByHash), so
it never moves to another broker while the route is unchanged.

A topic that does not exist yet has the queues that brokers will make for it: those of ``TBW102``, at most four on each
broker, which makes the topic at its first message (MQClientInstance.updateTopicRouteInfoFromNameServer). A retry topic
that does not exist yet has one queue on each master. An existing topic has only the queues of its route: if none of
them is writable, nothing is sent.

A broker that was slow or failed is avoided for some time:

==================  ================
a request took      avoided for
==================  ================
up to 0.55 s        not at all
from 0.55 s on      30 s
from 1 s on         60 s
from 2 s on         2 min
from 3 s on         3 min
from 15 s on        10 min
it failed           30 s
==================  ================

A quick success ends the avoidance. [MQFaultStrategy with sendLatencyFaultEnable, which avoids a broker for minutes
after one failure; a restarted broker is back after seconds, so here it is 30 s.]
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.client.routes import not_writable
from rmqclient.errors import UnknownTopic
from rmqclient.message import MessageQueue
from rmqclient.names import RETRY_PREFIX, check_topic
from rmqclient.store import java_hash

DEFAULT_TOPIC: Final = "TBW102"
"""The topic whose route new topics will have. [AUTO_CREATE_TOPIC_KEY_TOPIC]"""
DEFAULT_QUEUES: Final = 4
"""Queues on each broker of a topic that is made by its first message, at most. [defaultTopicQueueNums]"""

_EXPECTED_FOR_S: Final = 1.0
"""Seconds for which the expected queues of a missing topic are cached."""

_SLOW_S: Final = 0.55
_FAILED_FOR_S: Final = 30.0
_AVOIDED_FOR_S: Final = ((15.0, 600.0), (3.0, 180.0), (2.0, 120.0), (1.0, 60.0), (_SLOW_S, 30.0))


@dataclass(slots=True)
class _Topic:
    """The queues of a topic, and whose turn it is."""

    queues: Sequence[MessageQueue]
    good_until: float
    turns: itertools.count[int] = field(default_factory=itertools.count)


class QueueChoice:
    """Chooses queues by the routes of a cluster. Safe for threads."""

    def __init__(self, client: ClusterClient, refresh_s: float = 5.0) -> None:
        self._routes = client.routes
        self._brokers = client.brokers
        self._refresh_s = refresh_s
        self._topics: dict[str, _Topic] = {}
        self.avoidance = Avoidance()

    def is_known(self, topic: str) -> bool:
        """Return whether :meth:`next` needs no name server."""
        known = self._topics.get(topic)
        return known is not None and time.monotonic() < known.good_until

    def next(self, topic: str, sharding_key: str | None = None, failed_on: str = "") -> MessageQueue:
        """Return the queue for the next message of a topic.

        ``failed_on`` is the broker that has just failed with this message; it is skipped if there is another one.
        Raises UnknownTopic for a topic that does not exist and is not made by its first message, and for one that is
        not writable; InvalidName; NameServerUnreachable.
        """
        known = self._topic(topic)
        queues = known.queues
        if sharding_key is not None:
            return queues[abs(java_hash(sharding_key)) % len(queues)]
        turn = next(known.turns) % len(queues)
        if failed_on or self.avoidance:
            return self._passing_over(queues, turn, failed_on)
        return queues[turn]

    def brokers(self, topic: str) -> set[str]:
        """Return the names of a topic's brokers. Raises as :meth:`next`."""
        return {queue.broker_name for queue in self._topic(topic).queues}

    def forget(self, topic: str) -> None:
        """Ask a name server before the next message of a topic."""
        self._routes.forget(topic)
        known = self._topics.get(topic)
        if known is not None:
            known.good_until = 0.0

    def _passing_over(self, queues: Sequence[MessageQueue], turn: int, failed_on: str) -> MessageQueue:
        in_turn = [*queues[turn:], *queues[:turn]]
        others = [queue for queue in in_turn if queue.broker_name != failed_on]
        good = (queue for queue in others if queue.broker_name not in self.avoidance)
        return next(good, (others or in_turn)[0])

    def _topic(self, topic: str) -> _Topic:
        known = self._topics.get(topic)
        if known is None or time.monotonic() >= known.good_until:
            known = self._look_up(topic, known)
        return known

    def _look_up(self, topic: str, known: _Topic | None) -> _Topic:
        check_topic(topic, reserved=True)
        good_for_s = self._refresh_s
        try:
            queues = self._routes.publish_queues(topic)
        except UnknownTopic:
            queues, good_for_s = self._expected(topic), _EXPECTED_FOR_S
        if not queues:
            raise not_writable(topic)
        found = _Topic(tuple(queues), time.monotonic() + good_for_s)
        if known is not None:
            found.turns = known.turns
        self._topics[topic] = found
        return found

    def _expected(self, topic: str) -> list[MessageQueue]:
        """Return the expected queues of a topic without a route."""
        if topic.startswith(RETRY_PREFIX):
            return [MessageQueue(topic, 0, broker_name) for broker_name in sorted(self._brokers.masters())]
        try:
            model = self._routes.publish_queues(DEFAULT_TOPIC)
        except UnknownTopic:
            model = []
        queues = [
            MessageQueue(topic, each.queue_id, each.broker_name) for each in model if each.queue_id < DEFAULT_QUEUES
        ]
        if not queues:
            raise UnknownTopic(
                f"topic {topic!r} does not exist or is not writable, and the brokers of this cluster make no topic for "
                "its first message (autoCreateTopicEnable=false): make it with Producer.create_topic or "
                "`rmq topic create`"
            )
        return queues


class Avoidance:
    """The names of avoided brokers. Safe for threads. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def took(self, broker_name: str, seconds: float) -> None:
        """Note the seconds of an answered request."""
        if seconds >= _SLOW_S:
            pause = next(pause for least, pause in _AVOIDED_FOR_S if seconds >= least)
            self._until[broker_name] = self._clock() + pause
        elif self._until:
            self._until.pop(broker_name, None)

    def failed(self, broker_name: str) -> None:
        """Note a request that failed, or was refused for now."""
        self._until[broker_name] = self._clock() + _FAILED_FOR_S

    def __contains__(self, broker_name: str) -> bool:
        """Return whether a broker should be avoided."""
        return broker_name in self._until and self._clock() < self._until[broker_name]

    def __bool__(self) -> bool:
        """Return whether any broker may be avoided."""
        return bool(self._until)
