"""Member list: members of a group, from a broker of one of its topics.

Every broker knows the members from their heartbeats, so any broker may be asked. It sends a notice (request 40) to all
members when one joins, leaves, or loses its connection.
"""

from __future__ import annotations

import random
import time
import zlib
from contextlib import suppress
from typing import NamedTuple

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.errors import QueueError
from rmqclient.remoting.bodies import ConsumerIds
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.table import request
from rmqclient.store.threads.logs import Log

_TIMEOUT_S = 3.0

_log = Log(__name__)


class ClusterSeat(NamedTuple):
    """A member, as the other members count it. Its key is derived from its client id."""

    client_id: str
    key: tuple[int, int]


def seat_of(client_id: str) -> ClusterSeat:
    """Return the seat of a client; its key is never ``(0, 0)``."""
    return ClusterSeat(client_id, (zlib.crc32(client_id.encode()), len(client_id)))


class MemberList:
    """The members of one group, for the topics of one client. :meth:`ask` is for one thread."""

    def __init__(self, client: ClusterClient, group: str) -> None:
        self._client = client
        self._group = group
        self.topics: set[str] = set()
        """Topics whose brokers may be asked."""
        self.seats: tuple[ClusterSeat, ...] = ()
        """The members in the last answer; empty before the first one."""
        self.vanished: dict[str, float] = {}
        """Former members → monotonic seconds at which their absence was seen."""

    def ask(self) -> bool:
        """Ask a broker; return whether the members have changed. Without an answer they stay unchanged.

        A list without this client is ignored: the broker learns of it by the next heartbeat.
        """
        ids = self._ids()
        if ids is None:
            return False
        if self._client.client_id not in ids:
            self._client.heartbeats.beat()
            return False
        seats = tuple(seat_of(client_id) for client_id in sorted(ids, key=_as_java_sorts))
        if seats == self.seats:
            return False
        for gone in {seat.client_id for seat in self.seats} - ids:
            self.vanished[gone] = time.monotonic()
        for client_id in ids & self.vanished.keys():
            del self.vanished[client_id]
        self.seats = seats
        return True

    def _ids(self) -> set[str] | None:
        for address in self._addresses():
            wanted = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=self._group)
            try:
                return set(ConsumerIds.decode(self._client.call(address, wanted, _TIMEOUT_S).body).ids)
            except QueueError as error:
                _log.debug("group %s: %s does not tell its members: %s", self._group, address, error)
        return None

    def _addresses(self) -> list[str]:
        """Return the brokers' addresses in a random order: masters, or slaves of brokers without one.

        Slaves know the members, too, because they get heartbeats.
        """
        names: set[str] = set()
        for topic in list(self.topics):
            with suppress(QueueError):  # the topic may not exist yet
                names |= {queue.broker_name for queue in self._client.routes.read_queues(topic)}
        found = set()
        for name in names:
            with suppress(QueueError):  # the broker may be gone
                found.add(self._client.brokers.read_address(name))
        return random.sample(sorted(found), len(found))


def _as_java_sorts(text: str) -> bytes:
    """Return a key that sorts like Java's ``String.compareTo``: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
