"""Reclaiming: a primary that lost power takes back bytes from its replica before it continues.

Replicated bytes are on two hosts, and a power cut takes the end of one log only. If a primary was not closed in order
before its host restarted, its replica may have that end. Their logs have one history and nothing was written since, so
the shorter log is a prefix of the longer one. The replica connects as always; the primary says that it is
``unsettled``, reports like a replica, and gets the rest. Then it begins a new epoch and is a primary again; the epoch
detects a second replica that has still more.

A replica whose first connection broke before its first byte is empty and has nothing to give back. A new directory is
empty, too, but proves nothing; the list of copies that have followed tells the two apart.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from pathlib import Path
from typing import Final, Self

from rmqclient.errors import CannotListen, FrameError, LogsDiffer, QueueError, StoreFenced, StoreInUse
from rmqclient.replication import handshake
from rmqclient.replication.frames import OURS
from rmqclient.replication.handshake import Hello, Wants, hello_of
from rmqclient.replication.joining import Joining
from rmqclient.replication.receiving import Ack, Receiving
from rmqclient.replication.returning.fencing import be_fenced
from rmqclient.store import MessageStore, open_store
from rmqclient.store.append.replica_log import ReplicaLog
from rmqclient.store.recovery import replica
from rmqclient.store.settings.lineage import common_end, followers
from rmqclient.store.settings.replica_mark import Kind, read_mark
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_LOOK_S: Final = 0.2
_SAY_S: Final = 60
_HELLO_S: Final = 5.0
"""Seconds for a peer's hello, once it has begun; other peers wait meanwhile."""
_MOST_SILENT: Final = 16


def reclaim(root: Path, host: str, port: int, ended: threading.Event) -> bool:
    """Wait for the replica at an address, take back its bytes, and make the store a primary again.

    Returns False if ``ended`` was set first. Raises CannotListen, StoreBusy if another process waits or serves
    replicas, StoreFenced if a promoted replica connects, and as opening and appending.
    """
    with open_store(root, create=False, housekeeping=False, settling=True) as store, Reclaiming(store) as waiting:
        waiting.listen(host, port)
        if not waiting.run(ended):
            return False
    return _settled(root, ended)


def _settled(root: Path, ended: threading.Event) -> bool:
    """Make the store a primary again, once no command has it open; return False if ``ended`` was set first."""
    said = ""
    while not ended.is_set():
        try:
            replica.promote(root)
        except StoreInUse as error:
            if str(error) != said:
                _log.warning("%s", said := str(error))
            ended.wait(_LOOK_S)
        else:
            return True
    return False


class Reclaiming:
    """The port of a primary that waits for its replica. A context manager."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._log: ReplicaLog = ReplicaLog(store)
        self._log.settle()
        self._listening: socket.socket | None = None
        self._silent: list[socket.socket] = []

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return host and port. Raises CannotListen, and StoreBusy if another process waits or serves."""
        self._store.log_sending.begin()
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listening = socket.create_server((host, port), family=family)
        except OSError as error:
            raise CannotListen(f"cannot listen for the replica on {host}:{port}: {error.strerror or error}") from error
        self._listening.setblocking(False)
        found = self._listening.getsockname()
        return str(found[0]), int(found[1])

    def run(self, ended: threading.Event) -> bool:
        """Wait until a replica has given back its bytes; return False if ``ended`` was set first."""
        looks = 0
        while not ended.is_set() and self._listening is not None:
            if looks % int(_SAY_S / _LOOK_S) == 0:
                _log.warning("%s waits for its replica, which may have what was lost here", self._store.root)
            looks += 1
            connection = self._next(self._listening)
            if connection is not None:
                with connection:
                    if self._is_settled_by(connection, ended):
                        return True
        return False

    def _next(self, listening: socket.socket) -> socket.socket | None:
        """Return a connection with data or an end. Others wait; of too many the oldest is closed."""
        with selectors.DefaultSelector() as selector:
            for each in (listening, *self._silent):
                selector.register(each, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(_LOOK_S)]
        if listening in ready:
            try:
                self._silent.append(listening.accept()[0])
            except OSError:  # such as no free descriptor; the next turn may get one
                time.sleep(_LOOK_S)
        if len(self._silent) > _MOST_SILENT:
            self._silent.pop(0).close()
        spoken = next((each for each in self._silent if each in ready), None)
        if spoken is not None:
            self._silent.remove(spoken)
        return spoken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._silent:
            each.close()
        if self._listening is not None:
            self._listening.close()

    def _is_settled_by(self, connection: socket.socket, ended: threading.Event) -> bool:
        """Take back the other side's bytes; return whether that was done. Raises StoreFenced."""
        connection.settimeout(_HELLO_S)
        try:
            if not handshake.is_ours(handshake.receiver(connection)(len(handshake.MAGIC_BYTES))):
                return False
            theirs = handshake.answer(connection, self._store)
            if theirs.wants == Wants.FOLLOW:
                return self._take_back(connection, theirs, ended)
            if theirs.wants == Wants.FENCE:
                be_fenced(self._store, connection, theirs)
        except (OSError, FrameError, QueueError) as error:
            _log.warning("the replica gave nothing back: %s", error)
        mark = read_mark(self._store.root)
        if mark is not None and mark.kind is Kind.FENCED:
            raise StoreFenced(f"{mark.primary} took the place of {self._store.root}: `rmq replica rejoin` follows it")
        return False

    def _take_back(self, connection: socket.socket, theirs: Hello, ended: threading.Event) -> bool:
        own = hello_of(self._store)
        if not theirs.epochs and theirs.end == theirs.begin:  # a kill may have left the id without epochs
            return self._has_followed(theirs)
        same = common_end(own.lineage.epochs, own.end, theirs.lineage.epochs, theirs.end)
        if own.store_id != theirs.store_id or same != min(own.end, theirs.end):
            raise LogsDiffer(f"it is of store {theirs.store_id} up to {theirs.end}, this is {own.store_id}: no copy")
        if theirs.end > own.end:
            self._receive(connection, theirs, ended)
            _log.warning("%s took %d bytes back from its replica", self._store.root, self._log.end - own.end)
        return self._log.end >= theirs.end

    def _has_followed(self, empty: Hello) -> bool:
        """Return True for an empty replica that has followed, so has no more. Raises LogsDiffer for a new one."""
        copies = followers(self._store.root)
        if empty.copy not in copies:
            raise LogsDiffer(
                f"{empty.copy} is new and has nothing; of those that have followed, {copies}, one must call"
            )
        return True

    def _receive(self, connection: socket.socket, theirs: Hello, ended: threading.Event) -> None:
        """Follow the replica up to its end. Raises as :meth:`Receiving.run`."""
        done = threading.Event()

        def heard(_: int) -> None:
            if ended.is_set() or self._log.end >= theirs.end:
                done.set()

        joining = Joining(self._log, self._store.config.commit_log_file_bytes, theirs.shape)
        Receiving(self._store, connection, self._log, joining, Ack.DISK, heard, wire=OURS).run(done)
