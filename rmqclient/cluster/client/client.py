"""Cluster client: one client of a cluster.

It has a client id, by which groups count their members, and its own connections, by which brokers identify it. All
clients of a process share one I/O thread.

================  ===========================================================================
``name_servers``  asks the name servers
``brokers``       the addresses of brokers
``routes``        the queues of topics
``heartbeats``    the groups of this client, which brokers learn by them
``requests``      handlers of brokers' requests to this client
================  ===========================================================================
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from functools import partial

from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.brokers import Brokers
from rmqclient.cluster.client.heartbeats import Heartbeats
from rmqclient.cluster.client.name_servers import NameServers
from rmqclient.cluster.client.requests import BrokerRequests
from rmqclient.cluster.client.routes import Routes
from rmqclient.cluster.net.connection import Done
from rmqclient.cluster.net.connections import Connections
from rmqclient.cluster.net.tls import context_of
from rmqclient.errors import QueueError, StoreClosed
from rmqclient.remoting.errors import error_of
from rmqclient.remoting.frame import Frame
from rmqclient.store import fork
from rmqclient.store.native_threads import check_unpatched

_numbers = itertools.count()


class ClusterClient:
    """One client of the cluster of ``url``. Safe for threads. It connects on demand.

    The default ``client_id`` has this host's address and the process id; the URL's ``unit_name`` is appended. A forked
    child must make its own client: this one raises StoreClosed there.
    """

    def __init__(self, url: ClusterURL, client_id: str | None = None) -> None:
        check_unpatched("a client of a cluster")
        self.url = url
        unit = f"@{url.unit_name}" if url.unit_name else ""
        self.client_id = f"{client_id or _made_client_id()}{unit}"
        self.requests = BrokerRequests(self.client_id)
        self._connections = Connections(
            None if url.tls is None else context_of(url.tls), url.timeout_s, self.requests.take, self._lost
        )
        self.name_servers = NameServers(url.name_servers, self.call, self.submit, url.timeout_s)
        self.brokers = Brokers(self.name_servers)
        self.routes = Routes(url, self.name_servers, self.brokers, self._found)
        self.heartbeats = Heartbeats(self.client_id, self.submit, self.routes, url.timeout_s, self.check_usable)
        self._losses: Counter[str] = Counter()
        self._closed_by = ""
        fork.register(self)

    @property
    def is_io_thread(self) -> bool:
        """Whether the caller runs on the I/O thread, which must not block."""
        return self._connections.is_io_thread

    def call(self, address: str, request: Frame, timeout_s: float | None = None, also: Collection[int] = ()) -> Frame:
        """Send a request to ``host:port`` and return the answer, if its code is 0 or in ``also``.

        The default of ``timeout_s`` is the URL's. Raises a :class:`rmqclient.remoting.errors.AnswerError` for any other
        answer, BrokerUnreachable, ConnectionLost, TlsFailed, RequestTimedOut, ConnectionFull, FrameError for more than
        16 MiB, and StoreClosed. Not for the I/O thread.
        """
        self._prepare(request)
        answer = self._connections.to(address).ask(request, timeout_s or self.url.timeout_s)
        if answer.code and answer.code not in also:
            raise error_of(answer, address)
        return answer

    def submit(self, address: str, request: Frame, done: Done, timeout_s: float | None = None) -> None:
        """Send a request; ``done`` gets the answer with any code, or the error of :meth:`call`.

        ``done`` runs on the I/O thread and must not block. Raises StoreClosed, and FrameError for more than 16 MiB.
        """
        self._prepare(request)
        try:
            self._connections.to(address).submit(request, done, timeout_s or self.url.timeout_s)
        except StoreClosed:
            raise
        except QueueError as error:
            self._connections.io().run_soon(partial(done, error))

    def tell(self, address: str, request: Frame) -> None:
        """Send a oneway request. Raises as :meth:`call`, for errors that are known at once."""
        self._prepare(request)
        self._connections.to(address).tell(request)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Run ``call`` in ``delay_s`` seconds on the I/O thread; it must not block. Raises StoreClosed."""
        self.check_usable()
        self._connections.io().run_later(delay_s, call)

    def losses(self, address: str) -> int:
        """Return the number of times that the connection to ``host:port`` ended or could not be made."""
        return self._losses[address]

    def check_usable(self) -> None:
        """Raise StoreClosed if the client was closed, and in a forked child."""
        if self._closed_by:
            raise StoreClosed(f"the client of {self.url.shown} {self._closed_by}")

    def close(self) -> None:
        """Leave all groups and end all connections; waiting requests raise StoreClosed. Closing twice does nothing."""
        if self._closed_by:
            return
        self.heartbeats.close()
        self._closed_by = "was closed"
        self._connections.close(StoreClosed(f"the client of {self.url.shown} was closed"))
        self.requests.close()

    def leave_to_parent(self) -> None:
        """In a forked child: refuse all later calls."""
        self._closed_by = "belongs to the process from which this one was forked: make another one"
        self._connections.leave_to_parent()

    def _prepare(self, request: Frame) -> None:
        if self._closed_by:
            self.check_usable()
        if self.url.keys is not None:
            self.url.keys.sign(request)

    def _found(self, addresses: AbstractSet[str]) -> None:
        self.heartbeats.beat(addresses)  # the routes are made before it

    def _lost(self, address: str) -> None:
        self._losses[address] += 1  # only on the I/O thread
        self.routes.doubt(address)
        self.heartbeats.lost(address)


def _made_client_id() -> str:
    """Return ``ip@pid#number``. [ClientConfig.buildMQClientId]"""
    return f"{_own_address()}@{os.getpid()}#{time.time_ns()}{next(_numbers)}"


def _own_address() -> str:
    """Return the address of this host's outgoing connections. Connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation: no host has it
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
