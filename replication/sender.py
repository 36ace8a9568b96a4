"""Sender: sends the log of an open store to one replica, and hears how far the replica is.

It sends what every reader may see, whichever process has appended it, and sleeps on a bell of the store until there is
more. Nothing waits for the disk of the primary, as in RocketMQ. Two threads: one sends, one hears reports.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rmqclient.errors import QueueError
from rmqclient.replication.frames import HEARTBEAT_S, MOST_BYTES, SILENCE_S, ReportReader, frame
from rmqclient.store import LONGEST_SLEEP_S, MessageStore

_log = logging.getLogger(__name__)

_READ_BYTES: Final = 4096


class Sender:
    """One connection of a replica. It ends when the replica is gone, is silent, or says to have more than there is."""

    def __init__(self, store: MessageStore, connection: socket.socket, name: str, told: Callable[[], None]) -> None:
        """``told`` is called after each report, and when the connection has ended."""
        self.name = name
        """Where the replica connects from."""
        self.identity = name.rpartition(":")[0]
        """Which replica it is: its host, because nothing in a stock one's words says more."""
        self.is_flushed = False
        """Whether it reports what is on its disk."""
        self.reported: int | None = None
        """The end of the replica's log, by its last report."""
        self.acked: int | None = None
        """The same, from its second report on: the first one only asks where to begin, and anybody can send it."""
        self._told = told
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
            threading.Thread(target=self._run, args=(work,), name=f"rmq-ha-{name}", daemon=True)
            for work in (self._hear, self._send)
        ]

    def start(self) -> None:
        """Begin to serve the replica."""
        for thread in self._threads:
            thread.start()

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
        reader = ReportReader()
        while self.is_open:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                _log.info("replica %s has gone", self.name)
                return
            for end in reader.feed(data):
                self._take(end)
            self._told()

    def _take(self, end: int) -> None:
        """Believe a report. Raises ConnectionError for bytes that this log does not have."""
        published_to = self._store.state.published_to
        if end > published_to:
            raise ConnectionError(
                f"it reports {end}, and this log ends at {published_to}: the replica has bytes that are not from here"
            )
        if not self._begun.is_set():
            self._begin = self._sent_to = end or self._store.log_files.base_of(self._store.state.min_offset)
            _log.info("replica %s begins at %d of %d", self.name, self._begin, published_to)
            self._begun.set()
        else:
            self.acked = min(end, self._sent_to)
        self.reported = end

    # --- the log --------------------------------------------------------------------------------------

    def _send(self) -> None:
        self._begun.wait()
        offset, said_at = self._begin, 0.0  # 0: the first heartbeat comes at once
        while self.is_open:
            heard = self._bell.arm_log()
            content = self._next(offset)
            if content or time.monotonic() - said_at >= HEARTBEAT_S:
                self._sent_to = max(self._sent_to, offset + len(content))
                self._socket.sendall(frame(offset, content))
                offset, said_at = offset + len(content), time.monotonic()
            if not content:
                self._bell.wait(heard, min(LONGEST_SLEEP_S, HEARTBEAT_S))

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
