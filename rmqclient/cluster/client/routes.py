"""Routes: the queues of topics. [MQClientInstance]

A route is cached for 30 s. Its next use asks for it again if a broker said that it does not have the topic
(:meth:`Routes.forget`), or if one of its brokers could not be reached.

For a topic without a known route, a request waits for a name server up to its time-out. A known route stays in use
while no name server answers, and while none of its brokers is registered: a name server forgets a broker and its
topics when the broker or the name server restarts. If a route has lost one of several brokers, or a master, it is asked
for every 5 s for a minute, so that a restarted broker is found soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.brokers import Brokers
from rmqclient.cluster.client.name_servers import NameServers
from rmqclient.errors import NameServerUnreachable, QueueError, TopicNotWritable, UnknownTopic
from rmqclient.remoting.bodies import MASTER_ID, READABLE, WRITABLE, RouteQueue, TopicRoute
from rmqclient.remoting.errors import TopicNotFound
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import RequestCode, request
from rmqclient.store import MessageQueue
from rmqclient.store.threads.logs import Log

FRESH_S: Final = 30.0  # pollNameServerInterval
RETRY_S: Final = 5.0  # between requests that get no answer, and while a broker is missing
MISSING_S: Final = 60.0  # for which a broker that has left a route is expected back

_log = Log(__name__)


@dataclass(slots=True)
class _Known:
    """The route of a topic. ``fresh_until`` is in monotonic seconds; ``doubted``: it was seen to be wrong."""

    route: TopicRoute
    fresh_until: float
    doubted: bool = False
    missing: dict[str, float] = field(default_factory=dict)
    """Brokers whose master has left the route → monotonic seconds until which it is expected back."""
    publish: list[MessageQueue] = field(default_factory=list)
    read: list[MessageQueue] = field(default_factory=list)


class Routes:
    """The routes that a client has asked for. For any thread but the I/O thread.

    Topics have the application's names; the URL's namespace is added. ``on_brokers`` is called with the addresses of
    new brokers.
    """

    def __init__(
        self,
        url: ClusterURL,
        name_servers: NameServers,
        brokers: Brokers,
        on_brokers: Callable[[AbstractSet[str]], None],
    ) -> None:
        self._url = url
        self._name_servers = name_servers
        self._brokers = brokers
        self._on_brokers = on_brokers
        self._known: dict[str, _Known] = {}

    def of(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """Return the route of a topic; with ``fresh`` ask for it now.

        Raises UnknownTopic, and NameServerUnreachable if no route is known.
        """
        return self._of(topic, fresh=fresh).route

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues, sorted; may be empty. Do not change the list. Raises as :meth:`of`."""
        return self._of(topic).publish

    def read_queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues, sorted; may be empty. Do not change the list. Raises as :meth:`of`."""
        return self._of(topic).read

    def forget(self, topic: str) -> None:
        """Ask for a topic's route again at its next use."""
        known = self._known.get(self._url.wrap(topic))
        if known is not None:
            known.doubted = True

    def known_brokers(self, *, slaves: bool) -> set[str]:
        """Return the addresses of the brokers in all cached routes: masters, and slaves on demand."""
        return {
            address
            for known in list(self._known.values())
            for broker in known.route.brokers
            for broker_id, address in broker.addresses.items()
            if slaves or broker_id == MASTER_ID
        }

    def doubt(self, address: str) -> None:
        """Ask again for the routes with this broker at their next use. For any thread, also the I/O thread."""
        for known in list(self._known.values()):
            if any(address in broker.addresses.values() for broker in known.route.brokers):
                known.doubted = True

    def refresh(self) -> None:
        """Ask for stale routes again; failures leave them unchanged."""
        for name, known in list(self._known.items()):
            if time.monotonic() >= known.fresh_until:
                try:
                    self._again(self._url.unwrap(name), name, known)
                except QueueError as error:
                    _log.info("%s", error)

    def _of(self, topic: str, *, fresh: bool = False) -> _Known:
        name = self._url.wrap(topic)
        known = self._known.get(name)
        if known is None:
            return self._adopt(topic, name, self._asked(name, self._name_servers.call_patiently))
        if not (fresh or known.doubted or time.monotonic() >= known.fresh_until):
            return known
        return self._again(topic, name, known)

    def _again(self, topic: str, name: str, known: _Known) -> _Known:
        known.fresh_until = time.monotonic() + RETRY_S  # this thread asks; others use the known route meanwhile
        known.doubted = False
        try:
            return self._adopt(topic, name, self._asked(name, self._name_servers.call))
        except NameServerUnreachable as error:
            _log.warning("%s: the route of %s stays as it was: %s", self._url.shown, name, error)
        except UnknownTopic as error:
            if self._has_registered(known.route):
                self._known.pop(name, None)
                raise
            _log.warning("the route stays as it was, because none of its brokers is registered: %s", error)
        return known

    def _has_registered(self, route: TopicRoute) -> bool:
        try:
            registered = self._brokers.cluster().brokers
        except NameServerUnreachable:
            return False
        return any(broker.name in registered for broker in route.brokers)

    def _asked(self, name: str, call: Callable[[Frame], Frame]) -> TopicRoute:
        try:
            return TopicRoute.decode(call(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=name)).body)
        except TopicNotFound as error:
            raise UnknownTopic(f"{self._url.shown}: no topic {name!r}") from error

    def _adopt(self, topic: str, name: str, route: TopicRoute) -> _Known:
        before = self.known_brokers(slaves=True)
        missing = _missing(self._known.get(name), route)
        known = _Known(route, time.monotonic() + (RETRY_S if missing else FRESH_S), missing=missing)
        known.publish = _queues(topic, _published(route), WRITABLE, _with_master(route))
        known.read = _queues(topic, route.queues, READABLE, {broker.name for broker in route.brokers})
        self._known[name] = known
        self._brokers.learn({broker.name: broker.addresses for broker in route.brokers})
        new = self.known_brokers(slaves=True) - before
        if new:
            self._on_brokers(new)
        return known


def not_writable(topic: str) -> TopicNotWritable:
    """Return the error for a topic whose route names no queue for producers."""
    return TopicNotWritable(
        f"topic {topic!r} is not writable at present: its route has no queue that takes messages on a broker whose "
        "master is there"
    )


def _missing(before: _Known | None, route: TopicRoute) -> dict[str, float]:
    """Return the brokers whose masters left the route recently → the time until which they are expected back."""
    if before is None:
        return {}
    now = time.monotonic()
    lost = dict.fromkeys(_with_master(before.route), now + MISSING_S) | before.missing
    present = _with_master(route)
    return {name: until for name, until in lost.items() if name not in present and now < until}


def _with_master(route: TopicRoute) -> set[str]:
    """Return the brokers that have a master."""
    return {broker.name for broker in route.brokers if MASTER_ID in broker.addresses}


def _published(route: TopicRoute) -> tuple[RouteQueue, ...]:
    """Return the queues for producers: those of ``order_conf``, if the name server has one for this topic."""
    if not route.order_conf:
        return route.queues
    counts = dict(part.split(":", 1) for part in route.order_conf.split(";") if ":" in part)
    return tuple(RouteQueue(name, int(count), int(count)) for name, count in counts.items() if count.isdecimal())


def _queues(topic: str, queues: Iterable[RouteQueue], perm: int, brokers: set[str]) -> list[MessageQueue]:
    found = [
        MessageQueue(topic, queue_id, queue.broker_name)
        for queue in queues
        if queue.perm & perm and queue.broker_name in brokers
        for queue_id in range(queue.read_queues if perm == READABLE else queue.write_queues)
    ]
    return sorted(found, key=lambda queue: queue.sort_key)
