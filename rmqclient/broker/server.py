"""Server: opens the store, listens, and ends.

A first signal stops new connections and requests. Requests already read are answered within a bounded time, held pulls
with nothing found; then the store is closed. A second signal skips the wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from rmqclient.broker.access.read_only import ReadOnly
from rmqclient.broker.address import Address
from rmqclient.broker.broker import Broker
from rmqclient.broker.life.clock_setting import ClockSetting
from rmqclient.broker.life.failures import Failures
from rmqclient.broker.life.parent import end_of_parent, when_parent_ends
from rmqclient.broker.net.connection import Connection, Quick
from rmqclient.broker.net.listener import Listener
from rmqclient.broker.net.opened import Opened
from rmqclient.broker.net.tls import Tls, keep_buffers_small
from rmqclient.broker.request import Handler
from rmqclient.broker.settings import ServeSettings, TlsMode
from rmqclient.errors import StoreReplaced, StoreUnsettled
from rmqclient.health.service_manager import ServiceManager
from rmqclient.store import MessageStore, clock, open_store, use_one_heap
from rmqclient.store.threads.guarded import ending_at_a_loss
from rmqclient.store.threads.logs import Log

if TYPE_CHECKING:
    from rmqclient.replication.primary import Primary

_log = Log(__name__)

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LOOK_S: Final = 0.01
_REPLACED_S: Final = 0.5
"""Seconds between two checks whether the store is fenced."""
_CLOSING_S: Final = 10.0
"""Seconds that closing the store may take."""


def serve(settings: ServeSettings, tell: Callable[[str], None], manager: ServiceManager | None = None) -> None:
    """Answer requests until TERM or INT. ``tell`` gets one line of JSON when the server is ready; so does ``manager``.

    Raises StoreFenced if the store is fenced, because its clients' acknowledgements would be lost; StoreReplaced if its
    directory was removed, renamed or replaced; ThreadLost if a thread of the library was lost; CannotListen,
    TlsUnusable, AccountsUnusable; ValueError for invalid failures; and as :func:`rmqclient.store.open_store` and
    :func:`rmqclient.store.clock.make`.
    """
    settings = replace(settings, root=settings.root.absolute())
    tls = Tls(settings.tls)
    if tls.is_certified or tls.is_required:
        tls.context()
    _warn_of_open_doors(settings)
    _allow_files()
    use_one_heap()
    keep_buffers_small()
    _make_clock(settings)
    with _open(settings) as store, _replicas_of(store, settings) as replicas:
        broker = Broker(store, settings)
        try:
            answering = _guarded(broker, settings)
        except BaseException:
            broker.close()
            raise
        server = Server(store, broker, answering, settings, tls, manager or ServiceManager(), replicas)
        with ending_at_a_loss():
            asyncio.run(server.run(tell))
        if server.is_replaced:
            store.life.check_primary()
        store.life.check_usable()


def _open(settings: ServeSettings) -> MessageStore:
    """Open the store; after a power cut it first takes back messages from its replica. Raises as :func:`serve`."""
    try:
        return open_store(settings.root)
    except StoreUnsettled:
        if settings.ha_listen is None:
            raise
        from rmqclient.replication.returning.reclaiming import reclaim  # noqa: PLC0415 - few servers need it

        reclaim(settings.root, *settings.ha_listen, end_of_parent() if settings.die_with_parent else threading.Event())
        return open_store(settings.root)


def _replicas_of(store: MessageStore, settings: ServeSettings) -> contextlib.AbstractContextManager[Primary | None]:
    """Return the server of replicas, not started; None without an address for them. Raises ReadOnlyReplica."""
    if not settings.read_only:
        store.life.check_primary()
    if settings.ha_listen is None:
        return contextlib.nullcontext()
    from rmqclient.replication.primary import Primary  # noqa: PLC0415 - without replicas a server starts sooner

    return Primary(store, *settings.ha_listen, settings.replication)


def _make_clock(settings: ServeSettings) -> None:
    """Give a store for tests its clock, unless an earlier run made it."""
    if settings.clock_factor is not None and not (settings.root / clock.FILE_NAME).exists():
        settings.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        clock.make(settings.root, factor=settings.clock_factor)


def _guarded(broker: Broker, settings: ServeSettings) -> Handler:
    """Return the handler of requests: the broker, with access checks and hooks for tests in front."""
    answering: Handler = broker.answer
    if settings.can_fail:
        answering = Failures(ClockSetting(answering).answer, settings.failures).answer
    if settings.read_only:
        answering = ReadOnly(broker.route, answering, broker.counters).answer
    if settings.acl_file is not None:
        from rmqclient.broker.access.guard import Guard  # noqa: PLC0415 - the parser of its file takes long to import

        guard = Guard(settings.acl_file, broker.route, answering, broker.counters)
        guard.open()
        answering = guard.answer
    return answering


def _warn_of_open_doors(settings: ServeSettings) -> None:
    """Warn of what other hosts can do, in a line for each kind of address."""
    outside = [str(address) for address in settings.listen if not _is_loopback(address.host)]
    dangers = []
    if settings.acl_file is None:
        dangers.append("any client may read, write and delete everything (--acl)")
    if settings.tls.mode is not TlsMode.ENFORCING:
        dangers.append("messages may cross the network in the clear (--tls enforcing)")
    if outside and dangers:
        _log.warning("listening on %s: %s", ", ".join(outside), "; ".join(dangers))
    if settings.ha_listen is not None and not _is_loopback(settings.ha_listen.host):
        _log.warning(
            "replicas connect to %s without TLS or access keys, so any host that reaches it gets every message: "
            "let only replicas through",
            settings.ha_listen,
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _allow_files() -> None:
    """Raise the limit of file descriptors to the maximum: each connection takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Server:
    """The event loop of a server."""

    def __init__(
        self,
        store: MessageStore,
        broker: Broker,
        answering: Handler,
        settings: ServeSettings,
        tls: Tls,
        manager: ServiceManager,
        replicas: Primary | None,
    ) -> None:
        self._store = store
        self._broker = broker
        self._manager = manager
        self._replicas = replicas
        self._settings = settings
        self._tls = tls
        self._opened = Opened(settings.limits, broker.counters)
        self._answering = answering
        is_guarded = answering != broker.answer  # guards must see every request
        self._quick: Quick | None = None if is_guarded or not broker.quick.sends.is_enabled else broker.quick.take

    @property
    def is_replaced(self) -> bool:
        """Whether this store, a primary, was replaced by another one."""
        return self._store.life.is_replica and not self._settings.read_only

    @property
    def is_moved(self) -> bool:
        """Whether the path of the store leads to another directory now, so that clients must not be answered."""
        try:
            self._store.life.check_usable()
        except StoreReplaced:
            return True
        return False

    async def run(self, tell: Callable[[str], None]) -> None:
        """Serve until a signal, drain until a second one, and close the broker."""
        try:
            await self._serve(tell)
        finally:
            await self._opened.end()
            await asyncio.to_thread(self._broker.close)  # its threads pass their last answers to this loop

    async def _serve(self, tell: Callable[[str], None]) -> None:
        signalled, signalled_again = _signals()
        self._broker.producing.begin(asyncio.get_running_loop())
        if self._settings.die_with_parent:
            when_parent_ends(signalled.set)
        listener = Listener(self._opened, self._make, self._tls)
        try:
            addresses = [listener.listen(address) for address in self._settings.listen]
            self._opened.start()
            followed = None if self._replicas is None else Address(*self._replicas.start())
            _collect_from_now_on()
            tell(ready_line(addresses, followed))
            self._manager.ready(f"serving at {', '.join(map(str, addresses))}")
            await self._until(signalled)
        finally:
            listener.close()
        await self._drain(signalled_again)

    async def _until(self, signalled: asyncio.Event) -> None:
        """Wait for a signal or the store's replacement; notify the watchdog meanwhile."""
        while not signalled.is_set() and not self.is_replaced and not self.is_moved:
            self._manager.alive()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(signalled.wait(), min(self._manager.beat_interval_s or _REPLACED_S, _REPLACED_S))
        self._manager.stopping("answering what was asked", self._settings.drain_s + _CLOSING_S)

    def _make(self, remote: Address) -> Connection:
        return Connection(self._answering, self._settings.advertise, self._opened, self._quick, remote)

    async def _drain(self, signalled_again: asyncio.Event) -> None:
        """Send answers for a bounded time, then end every connection."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._settings.drain_s
        connections = self._opened.connections()
        for connection in connections:
            connection.stop_reading()
        self._broker.drain()
        while loop.time() < until and not signalled_again.is_set():
            if all(connection.is_idle for connection in connections):
                break
            await asyncio.sleep(_LOOK_S)


def _collect_from_now_on() -> None:
    """Exclude the objects made at the start from garbage collection."""
    gc.freeze()
    gc.enable()


def ready_line(addresses: Sequence[Address], followed: Address | None = None) -> str:
    """Return the line of a ready server: its addresses, the address for replicas, and its process id."""
    ready: dict[str, object] = {"name_server": str(addresses[0]), "pid": os.getpid()}
    if len(addresses) > 1:
        ready["listens"] = [str(address) for address in addresses]
    if followed is not None:
        ready["ha"] = str(followed)
    return json.dumps(ready)


def _signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Return events for the first and the second signal to end; a third signal ends the process at once."""
    loop = asyncio.get_running_loop()
    first, second = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        if first.is_set():
            second.set()
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
        first.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, signalled)
    return first, second
