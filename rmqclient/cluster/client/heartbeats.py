"""Heartbeats: tell brokers the groups of this client. [MQClientInstance.sendHeartbeatToAllBroker]

A heartbeat is sent after a change, every 30 s, after a connection was lost, and to a new broker before its route is
used. A broker identifies a member by its connection: when that ends, the member is gone for it, so the next heartbeat
follows as soon as the broker can be reached.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from rmqclient.cluster.client.routes import Routes
from rmqclient.cluster.net.connection import Done
from rmqclient.errors import QueueError
from rmqclient.remoting.bodies import ConsumerData, Heartbeat, ProducerData
from rmqclient.remoting.errors import error_of
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import RequestCode, request
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.locks import Condition
from rmqclient.store.threads.logs import Log

INTERVAL_S: Final = 30.0  # heartbeatBrokerInterval
RETRY_S: Final = 1.0  # to a broker that did not get the last one
SOON_S: Final = 0.05  # after a loss: others may follow

_log = Log(__name__)


Submit: TypeAlias = Callable[[str, Frame, Done], None]
"""Sends a request to an address: :meth:`rmqclient.cluster.client.client.ClusterClient.submit`."""


@dataclass(slots=True)
class _Groups:
    """The groups of a client, by name."""

    producers: dict[str, ProducerData] = field(default_factory=dict)
    consumers: dict[str, ConsumerData] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.producers or self.consumers)


class Heartbeats:
    """Tells brokers the groups of one client. For any thread but the I/O thread.

    After ``check_usable`` raises, every method does, except :meth:`close`. Names of groups are those on the wire.
    """

    def __init__(
        self,
        client_id: str,
        submit: Submit,
        routes: Routes,
        timeout_s: float,
        check_usable: Callable[[], None],
    ) -> None:
        self._client_id = client_id
        self._submit = submit
        self._routes = routes
        self._timeout_s = timeout_s
        self._check_usable = check_usable
        self._groups = _Groups()
        self._versions: dict[str, int] = {}
        self._missed: set[str] = set()
        self._failing: set[str] = set()
        self._order = threading.Lock()  # a heartbeat must not overtake a newer one
        self._changed = Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def add_producer(self, group: str) -> None:
        """Join a producer group, so that brokers may ask this client about transactions and send it replies."""
        self._check_usable()
        with self._changed:
            self._groups.producers[group] = ProducerData(group)
        self._begin()

    def add_consumer(self, data: ConsumerData) -> None:
        """Join a consumer group, or change what it subscribes to."""
        self._check_usable()
        with self._changed:
            self._groups.consumers[data.group] = data
        self._begin()

    def remove_producer(self, group: str) -> None:
        """Leave a producer group."""
        with self._changed:
            known = self._groups.producers.pop(group, None)
        if known is not None:
            self._unregister(_Groups(producers={group: known}))

    def remove_consumer(self, group: str) -> None:
        """Leave a consumer group."""
        with self._changed:
            known = self._groups.consumers.pop(group, None)
        if known is not None:
            self._unregister(_Groups(consumers={group: known}))

    def beat(self, addresses: Iterable[str] | None = None) -> None:
        """Send a heartbeat to these brokers, or to all, and wait for the answers.

        A failure is logged, and that broker is tried again later.
        """
        self._check_usable()
        with self._order:
            with self._changed:
                groups = _Groups(dict(self._groups.producers), dict(self._groups.consumers))
            known = self._routes.known_brokers(slaves=bool(groups.consumers))
            targets = known if addresses is None else known.intersection(addresses)
            with self._changed:
                self._missed = (self._missed & known) - targets  # a loss from now on counts again
            if not groups or not targets:
                return
            beat = Heartbeat(self._client_id, tuple(groups.producers.values()), tuple(groups.consumers.values()))
            body = beat.encode()
            answers = _Answers(len(targets))
            for address in targets:
                self._submit(address, request(RequestCode.HEART_BEAT, body), partial(answers.take, address))
        for address, answer in answers.wait(self._timeout_s).items():
            self._heard(address, answer)

    def version(self, address: str) -> int:
        """Return a broker's version from its last answer, such as 407 for 4.9.7; 0 before the first one."""
        return self._versions.get(address, 0)

    def lost(self, address: str) -> None:
        """Send a heartbeat soon, because a connection has ended. For any thread."""
        with self._changed:
            self._missed.add(address)
            self._changed.notify_all()

    def close(self) -> None:
        """Leave all groups at the brokers, and end the thread."""
        with self._changed:
            groups, self._groups = self._groups, _Groups()
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._unregister(groups)

    def _begin(self) -> None:
        self.beat()
        with self._changed:
            if self._thread is None and not self._is_closed:
                name = f"rmq-heartbeat-{self._client_id}"
                self._thread = GuardedThread(target=self._run, name=name)
                self._thread.start()

    def _unregister(self, groups: _Groups) -> None:
        left: list[dict[str, object]] = [{"producerGroup": group} for group in groups.producers]
        left += [{"consumerGroup": group} for group in groups.consumers]
        targets = [address for address in self._routes.known_brokers(slaves=True) if address in self._versions]
        answers = _Answers(len(targets) * len(left))
        for names in left:
            for address in targets:
                asked = request(RequestCode.UNREGISTER_CLIENT, b"", clientID=self._client_id, **names)
                self._submit(address, asked, partial(answers.take, f"{address} {names}"))
        answers.wait(self._timeout_s)

    def _heard(self, address: str, answer: Frame | QueueError) -> None:
        failure = answer if isinstance(answer, QueueError) else None
        if isinstance(answer, Frame):
            self._versions[address] = answer.version
            failure = error_of(answer, address) if answer.code else None
        with self._changed:
            if failure is None:
                self._failing.discard(address)
                return
            self._missed.add(address)
            is_new = address not in self._failing
            self._failing.add(address)
        _log.log(logging.WARNING if is_new else logging.DEBUG, "no heartbeat, which is tried again: %s", failure)

    def _run(self) -> None:
        next_all = time.monotonic() + INTERVAL_S
        while (missed := self._due(next_all)) is not None:
            is_for_all = time.monotonic() >= next_all
            if is_for_all:
                next_all = time.monotonic() + INTERVAL_S
            try:
                self._beat_as_due(None if is_for_all else missed)
            except Exception:  # noqa: BLE001 - without heartbeats the groups would lose this client
                _log.exception("a heartbeat failed; it is tried again")

    def _beat_as_due(self, missed: set[str] | None) -> None:
        if missed is None:
            self._routes.refresh()
        self.beat(missed)

    def _due(self, next_all: float) -> set[str] | None:
        """Wait until a heartbeat is due; return the addresses, empty for all; None if this is closed."""
        with self._changed:
            retry_at = math.inf
            while not self._is_closed:
                now = time.monotonic()
                if self._missed and retry_at == math.inf:
                    retry_at = now + (RETRY_S if self._missed & self._failing else SOON_S)
                if now >= min(next_all, retry_at):
                    return set(self._missed)
                self._changed.wait(min(next_all, retry_at) - now)
            return None


class _Answers:
    """Collects the answers to several requests, for a thread that waits."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken: dict[str, Frame | QueueError] = {}
        self._all = threading.Event()
        if not count:
            self._all.set()

    def take(self, name: str, answer: Frame | QueueError) -> None:
        self._taken[name] = answer
        if len(self._taken) == self._count:
            self._all.set()

    def wait(self, timeout_s: float) -> dict[str, Frame | QueueError]:
        self._all.wait(timeout_s + 1)  # each request has its own deadline
        return dict(self._taken)
