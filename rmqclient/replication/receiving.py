"""Receiving: one connection to a primary, whose bytes are compared, appended and reported.

A report is sent when the bytes below it are appended, and with ``Ack.DISK`` when they are on disk, too; one flush
covers all bytes of one read. Nothing is reported before the logs were compared, because a stock primary takes any
report for an acknowledgement.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from rmqclient.errors import LogsDiffer, NotFlushed
from rmqclient.replication.frames import HEARTBEAT_S, SILENCE_S, STOCK, Wire
from rmqclient.replication.joining import Joining
from rmqclient.store import MessageStore
from rmqclient.store.append.replica_log import ReplicaLog
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_READ_BYTES: Final = 1 << 20
_LOOK_S: Final = 1.0


class Ack(StrEnum):
    """What a report means for the bytes below it."""

    MEMORY = "memory"  #: they survive the end of all processes here, as with a stock slave
    DISK = "disk"  #: they survive a power cut here


class Receiving:
    """One connection. On every contact ``heard`` gets the end of the primary's log, at least.

    ``joined`` is called once, after both logs were found to agree, before a byte is appended.
    """

    def __init__(
        self,
        store: MessageStore,
        connection: socket.socket,
        log: ReplicaLog,
        joining: Joining,
        ack: Ack,
        heard: Callable[[int], None],
        *,
        wire: Wire = STOCK,
        joined: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._socket = connection
        self._log = log
        self._joining = joining
        self._ack = ack
        self._heard = heard
        self._wire = wire
        self._joined = joined
        self._reader = wire.frame_reader()
        self._held = bytearray()
        self._reported = -1
        self._reported_at = 0.0
        self._sent_at = 0.0

    def run(self, ended: threading.Event) -> None:
        """Receive until ``ended`` is set.

        Raises OSError if the connection is lost, FrameError, RecordsDamaged, LogsDiffer, and as an append.
        """
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(_LOOK_S)
        heard_at = self._sent_at = time.monotonic()
        while not ended.is_set():
            self._report()
            now = time.monotonic()
            if self._receive():
                heard_at = now
            elif now - heard_at > SILENCE_S:
                raise ConnectionError(f"silent for {SILENCE_S:.0f} s")
            if not self._joining.is_done and now - self._sent_at > SILENCE_S:
                raise self._nothing_of_what_is_asked()

    def _nothing_of_what_is_asked(self) -> Exception:
        """Return the error for a primary that is alive but does not send the bytes that both should have."""
        asked = f"bytes {self._joining.asked} to {self._log.end}"
        if self._joining.has_begun:
            return ConnectionError(f"the primary has sent a part of {asked} only")
        return LogsDiffer(
            f"the primary sends nothing of {asked}, which this replica has: it ends below, or has removed them. "
            "Nothing was changed"
        )

    def _receive(self) -> bool:
        """Take the next bytes; return whether any came."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            return False
        if not data:
            raise ConnectionResetError("the primary closed the connection")
        primary_end, is_sending = 0, False
        for frame in self._reader.feed(data):
            if not frame.is_end:
                self._held += self._joining.take(frame)
            primary_end = max(primary_end, frame.offset + len(frame.content))
            is_sending |= bool(frame.content)
        if is_sending or self._reader.is_amid_frame:
            self._sent_at = time.monotonic()
        if self._joining.is_done and self._joined is not None:
            self._joined()
            self._joined = None
        with memoryview(self._held).toreadonly() as content:
            taken = self._log.take(content)
        del self._held[:taken]
        self._heard(primary_end)
        return True

    def _report(self) -> None:
        """Report the end of the log if it has grown, or if the last report is old."""
        end = self._log.end if self._joining.is_done and not self._log.is_empty else self._joining.asked
        if end <= self._reported and time.monotonic() - self._reported_at < HEARTBEAT_S:
            return
        if self._ack is Ack.DISK and not self._is_durable():
            return
        self._socket.sendall(self._wire.report(end))
        self._reported, self._reported_at = end, time.monotonic()

    def _is_durable(self) -> bool:
        """Flush the log; return whether that succeeded. Raises StorePoisoned."""
        try:
            self._store.flusher.wait_until_flushed(self._log.end)
        except NotFlushed as error:
            _log.warning("nothing is reported to the primary for now: %s", error)
            return False
        return True
