"""Sender: sends the log of an open store to one replica, and takes its reports.

It sends all published bytes, whichever process has appended them, and sleeps on a bell of the store until there are
more. It does not wait for the primary's disk, as in RocketMQ. One thread sends, another one takes reports.
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
"""Seconds between frames with the log's end, for a replica of this library."""


class Sender:
    """One connection of a replica. It ends if the replica is gone, is silent, or reports more than the log has."""

    def __init__(
        self,
        store: MessageStore,
        connection: socket.socket,
        name: str,
        changed: Callable[[], None],
        strangers: Strangers | None = None,
    ) -> None:
        """``changed`` is called after each report, and when the connection has ended.

        ``strangers`` are those of all connections.
        """
        self.name = name
        """The replica's address, ``host:port``."""
        self.identity = name.rpartition(":")[0]
        """Copy id, or the host of a stock slave. An observer is identified by its connection."""
        self.is_flushed = False
        """Whether it reports bytes on its disk."""
        self.reported: int | None = None
        """The end of the replica's log, by its last report."""
        self.acked: int | None = None
        """The same, from its second report on: the first one is only the start offset, and proves nothing."""
        self.peer: Hello | None = None
        """The hello of a replica of this library; None for a stock one."""
        self._copy = ""
        """The copy id of a follower; empty for a stock replica, and for an observer."""
        self._wire = STOCK
        self._changed = changed
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
        """Start serving the replica."""
        for thread in self._threads:
            thread.start()

    def give_back(self, primary: Hello) -> None:
        """Send the log to an unsettled primary until it disconnects. Hellos were exchanged before."""
        self.peer, self._wire = primary, OURS
        self.start()
        self._ended.wait()
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return not self._ended.is_set()

    def close(self) -> None:
        """End the connection, and wait for its threads."""
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
            self._changed()

    # --- reports --------------------------------------------------------------------------------------

    def _hear(self) -> None:
        reader = self._meet()
        self._changed()
        while reader is not None and self.is_open:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                _log.info("replica %s has gone", self.name)
                return
            for end in reader.feed(data):
                self._take(end)
            self._changed()

    def _meet(self) -> ReportReader | None:
        """Identify the peer; return a reader of its reports, None if it needs nothing more.

        Raises ConnectionError for a replica of another history.
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
        self._store.life.check_primary()
        self._copy = theirs.copy if theirs.wants == Wants.FOLLOW else ""
        self.peer, self._wire = theirs, OURS
        self.identity, self.is_flushed = self._copy or self.name, theirs.ack == "disk"
        return self._wire.report_reader()

    def _take_first(self, end: int) -> None:
        """Accept the start offset of a stock replica.

        A stock replica does not say of which store its bytes are. If it had more than this store, which may have lost
        them, it is refused until it is empty: once the log passed its end, its bytes below would differ.
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
        """Accept a report. Raises ConnectionError if it is beyond this log."""
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
        """Send the log from an offset on. Raises StoreFull.

        First record that the copy follows, because from now on it may have bytes that a power cut takes from this
        store. A replica that saw in the hello that the logs differ does not come here.
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
        offset, said_at = self._begin, 0.0  # 0: send the first heartbeat at once
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
                self._socket.sendall(self._wire.end_frame(self._store.state.published_to))
            if is_due or (content and not self._wire.is_checked):
                said_at = time.monotonic()
            if not content:
                self._bell.wait(heard, min(LONGEST_SLEEP_S, every_s))

    def _next(self, offset: int) -> bytes:
        """Return the next bytes of the log, of one file; empty at its end, and where bytes were removed.

        A stock primary sends nothing then, either: the replica only gets heartbeats with the same offset.
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
    """Hosts of stock replicas that had bytes of another log. Safe for threads.

    A refused slave comes again every few seconds, so beyond the limit the least recent host is forgotten.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, None] = {}
        """The hosts, the least recent first."""
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
        """Return whether a host was noted, and make it the most recent one."""
        with self._lock:
            if host not in self._hosts:
                return False
            self._hosts[host] = self._hosts.pop(host)
            return True

    def forget(self, host: str) -> None:
        """Forget a host, whose replica is empty now."""
        with self._lock:
            self._hosts.pop(host, None)
