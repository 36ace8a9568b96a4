"""Sender: sends the log of an open store to one replica, and hears how far the replica is.

It sends what every reader may see, whichever process has appended it, and sleeps on a bell of the store until there is
more. Nothing waits for the disk of the primary, as in RocketMQ. Two threads: one sends, one hears reports.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rmqclient.errors import QueueError
from rmqclient.replication import handshake
from rmqclient.replication.frames import (
    HEARTBEAT_S,
    MOST_BYTES,
    OURS,
    REPORT_BYTES,
    SILENCE_S,
    STOCK,
    ReportReader,
)
from rmqclient.replication.handshake import Hello, Wants
from rmqclient.replication.returning.fencing import be_fenced
from rmqclient.store import LONGEST_SLEEP_S, MessageStore
from rmqclient.store.files.file_lock import TOPIC_BYTE
from rmqclient.store.settings.lineage import note_followed, read_lineage
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

MOST_STRANGERS: Final = 256
"""Hosts of stock replicas that are refused until they are empty."""

_READ_BYTES: Final = 4096
_TELL_S: Final = 1.0
"""How often a replica of this library is told where the log of its primary ends."""


class Sender:
    """One connection of a replica. It ends when the replica is gone, is silent, or says to have more than there is."""

    def __init__(
        self,
        store: MessageStore,
        connection: socket.socket,
        name: str,
        told: Callable[[], None],
        strangers: Strangers | None = None,
    ) -> None:
        """``told`` is called after each report, and when the connection has ended.

        ``strangers`` are those of all connections.
        """
        self.name = name
        """Where the replica connects from."""
        self.identity = name.rpartition(":")[0]
        """Which replica it is: its copy, or its host, because nothing in a stock one's words says more. Who only looks
        is nobody else."""
        self.is_flushed = False
        """Whether it reports what is on its disk."""
        self.reported: int | None = None
        """The end of the replica's log, by its last report."""
        self.acked: int | None = None
        """The same, from its second report on: the first one only asks where to begin, and anybody can send it."""
        self.peer: Hello | None = None
        """What a replica of this library said of itself; None for a stock one."""
        self._copy = ""
        """Which copy follows; empty for a stock replica, and for one that only looks."""
        self._wire = STOCK
        self._told = told
        self._strangers = Strangers() if strangers is None else strangers
        self._sent_to = 0
        self._store = store
        self._socket = connection
        self._bell = store.arrival_bell()
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._begin = 0
        connection.settimeout(SILENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._threads = [
            GuardedThread(target=self._run, args=(work,), name=f"rmq-ha-{name}") for work in (self._hear, self._send)
        ]

    def start(self) -> None:
        """Begin to serve the replica."""
        for thread in self._threads:
            thread.start()

    def give_back(self, primary: Hello) -> None:
        """Send to a primary that waits for what its replica has, until it has gone; hellos were exchanged."""
        self.peer, self._wire = primary, OURS
        self.start()
        self._ended.wait()
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether the replica is still served."""
        return not self._ended.is_set()

    def close(self) -> None:
        """End the connection; returns when its threads have ended."""
        self._end()
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def _end(self) -> None:
        self._ended.set()
        self._begun.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._bell.ring()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, QueueError) as error:
            if self.is_open:
                _log.warning("replica %s is not served any more: %s", self.name, error)
        finally:
            self._end()
            self._told()

    # --- reports --------------------------------------------------------------------------------------

    def _hear(self) -> None:
        reader = self._meet()
        self._told()
        while reader is not None and self.is_open:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                _log.info("replica %s has gone", self.name)
                return
            for end in reader.feed(data):
                self._take(end)
            self._told()

    def _meet(self) -> ReportReader | None:
        """Find out who has connected; return what reads its reports, None when it wants nothing more.

        Raises ConnectionError for a replica that is not from here.
        """
        if self.peer is not None:
            return self._wire.report_reader()
        first = handshake.receiver(self._socket)(REPORT_BYTES)
        if not handshake.is_ours(first):
            reader = self._wire.report_reader()
            self._take_first(*reader.feed(first))
            return reader
        theirs = handshake.answer(self._socket, self._store)
        if theirs.wants == Wants.FENCE:
            be_fenced(self._store, self._socket, theirs)
            return None
        own = read_lineage(self._store.root)
        if theirs.store_id not in ("", own.store_id) or theirs.lineage.newest > own.newest:
            raise ConnectionError(f"it is of store {theirs.store_id}, epoch {theirs.lineage.newest}, and not from here")
        self._store.check_primary()
        self._copy = theirs.copy if theirs.wants == Wants.FOLLOW else ""
        self.peer, self._wire = theirs, OURS
        self.identity, self.is_flushed = self._copy or self.name, theirs.ack == "disk"
        return self._wire.report_reader()

    def _take_first(self, end: int) -> None:
        """Believe where a stock replica wants to begin.

        Nothing in its words says whose bytes it has. So one that had more than this store, which has lost them perhaps,
        is refused until it has none: the log would pass its end, and go on behind bytes that are other ones.
        """
        is_empty, is_too_much = end == 0, end > self._store.state.published_to
        if is_empty:
            self._strangers.forget(self.identity)
        elif is_too_much:
            self._strangers.add(self.identity)
        elif self._strangers.has(self.identity):
            raise ConnectionError(f"it had bytes that are not from here; empty its store, which ends at {end}")
        self._take(end)

    def _take(self, end: int) -> None:
        """Believe a report. Raises ConnectionError for bytes that this log does not have."""
        published_to = self._store.state.published_to
        if end > published_to:
            raise ConnectionError(
                f"it reports {end}, and this log ends at {published_to}: the replica has bytes that are not from here"
            )
        if not self._begun.is_set():
            self._begin_at(end or self._store.log_files.base_of(self._store.state.min_offset))
        elif self.peer is None or self.peer.wants == Wants.FOLLOW:
            self.acked = min(end, self._sent_to)
        self.reported = end

    def _begin_at(self, offset: int) -> None:
        """Send the log from there on. Raises StoreFull.

        It is noted first that the copy follows: from now on it may have bytes that a power cut takes from this store.
        One that found in the hello that the logs differ has asked for nothing, and has nothing to give back.
        """
        if self._copy:
            with self._store.lock.held(TOPIC_BYTE):
                note_followed(self._store.root, self._copy)
        self._begin = self._sent_to = offset
        _log.info("replica %s begins at %d of %d", self.name, offset, self._store.state.published_to)
        self._begun.set()

    # --- the log --------------------------------------------------------------------------------------

    def _send(self) -> None:
        self._begun.wait()
        offset, said_at = self._begin, 0.0  # 0: the first heartbeat comes at once
        every_s = _TELL_S if self._wire.is_checked else HEARTBEAT_S
        while self.is_open:
            heard = self._bell.arm_log()
            content = self._next(offset)
            is_due = time.monotonic() - said_at >= every_s
            if content or (is_due and not self._wire.is_checked):
                self._sent_to = max(self._sent_to, offset + len(content))
                self._socket.sendall(self._wire.frame(offset, content))
                offset += len(content)
            if is_due and self._wire.is_checked:
                self._socket.sendall(self._wire.told(self._store.state.published_to))
            if is_due or (content and not self._wire.is_checked):
                said_at = time.monotonic()
            if not content:
                self._bell.wait(heard, min(LONGEST_SLEEP_S, every_s))

    def _next(self, offset: int) -> bytes:
        """Return the next bytes of the log, of one file; nothing at its end, and where it has no bytes any more.

        A stock primary sends nothing then, either: the replica hears heartbeats that do not go on.
        """
        files = self._store.log_files
        base = files.base_of(offset)
        count = min(MOST_BYTES, self._store.state.published_to - offset, base + files.file_bytes - offset)
        if count <= 0 or offset < self._store.state.min_offset:
            return b""
        try:
            return files.read(base, offset - base, count)
        except FileNotFoundError:
            return b""


class Strangers:
    """Hosts of stock replicas that have had bytes which are not from here. Safe for threads.

    A slave that is refused comes again every few seconds, so of too many hosts the one that has not come for longest
    is forgotten.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, None] = {}
        """In the order in which they came last."""
        self._lock = threading.Lock()

    def add(self, host: str) -> None:
        """Note a host."""
        with self._lock:
            self._hosts.pop(host, None)
            self._hosts[host] = None
            while len(self._hosts) > MOST_STRANGERS:
                oldest = next(iter(self._hosts))
                del self._hosts[oldest]
                _log.warning(
                    "slave %s had bytes that are not from here, and is forgotten: too many others have", oldest
                )

    def has(self, host: str) -> bool:
        """Tell whether a host was noted, which has come again."""
        with self._lock:
            if host not in self._hosts:
                return False
            self._hosts[host] = self._hosts.pop(host)
            return True

    def forget(self, host: str) -> None:
        """Note that a host has nothing any more."""
        with self._lock:
            self._hosts.pop(host, None)
