"""Follower: keeps a replica equal to its primary, and reconnects after every loss.

One thread receives the log, another one asks the primary's broker every few seconds.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from rmqclient.errors import BrokerUnreachable, FrameError, QueueError, RecordsDamaged, RemotingError, StoreBusy
from rmqclient.replication.frames import OURS, SILENCE_S, STOCK, Wire
from rmqclient.replication.handshake import Hello, greet, hello_of
from rmqclient.replication.joining import Joining, check_lineage
from rmqclient.replication.primary_client.broker_client import BrokerClient, LogShape, split
from rmqclient.replication.primary_client.settings_of_primary import SettingsOfPrimary
from rmqclient.replication.receiving import Ack, Receiving
from rmqclient.replication.sender import Sender
from rmqclient.replication.status import seen_of, write_seen
from rmqclient.store import MessageStore, clock
from rmqclient.store.append.replica_log import ReplicaLog
from rmqclient.store.files.file_lock import FOLLOWER_BYTE, TOPIC_BYTE
from rmqclient.store.settings.lineage import write_lineage
from rmqclient.store.settings.replica_mark import Kind
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_CONNECT_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 5.0
_ASK_S: Final = 1.0
_PROGRESS_IN_A_ROW: Final = 10
"""Copies of the progress for each copy of topics and settings. A stock slave copies all every 10 s."""
_DAMAGE_BELIEVED: Final = 3
"""Times that damaged bytes at one offset are asked for again: a wire may flip a bit, but a bad disk repeats it."""


class Follower:
    """Follows one primary, for an open replica. Raises StoreBusy if another process does."""

    def __init__(self, store: MessageStore, primary: str, broker: str, *, ack: Ack = Ack.DISK) -> None:
        if not store.lock.try_exclusive(FOLLOWER_BYTE):
            raise StoreBusy(f"process {store.lock.holder(FOLLOWER_BYTE)} follows the primary of {store.root} already")
        self._store = store
        self._primary = primary
        self._broker = broker
        self._ack = ack
        self._log = ReplicaLog(store)
        self._log.settle()
        self._ended = threading.Event()
        self._socket: socket.socket | None = None
        self._seen = replace(seen_of(store.root, primary), problem="")
        self._damages: list[int] = []
        self._is_stock = False

    def run(self) -> None:
        """Follow until :meth:`end`. Raises LogsDiffer, ConfigMismatch, RecordsDamaged, and as an append."""
        asking = GuardedThread(target=self._ask_broker, name="rmq-replica-settings")
        asking.start()
        try:
            self._follow()
        except QueueError as error:
            self._note(str(error))
            raise
        finally:
            self.end()
            asking.join()
            write_seen(self._store.root, self._seen)

    def end(self) -> None:
        """Let :meth:`run` return soon. For any thread, and for signal handlers."""
        self._ended.set()
        connection = self._socket
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _follow(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._ended.is_set():
            end = self._log.end
            try:
                self._connect()
            except (OSError, FrameError) as error:
                self._lose(str(error))
            except RecordsDamaged as error:
                self._lose(str(error))
                self._damages.append(error.position)
                if self._damages.count(error.position) >= _DAMAGE_BELIEVED:
                    raise
            pause_s = _FIRST_PAUSE_S if self._log.end > end else min(2 * pause_s, _LONGEST_PAUSE_S)
            self._ended.wait(pause_s)

    def _lose(self, problem: str) -> None:
        if not self._ended.is_set():
            _log.warning("primary %s: %s; trying again", self._primary, problem)
            self._note(problem)

    # --- the log --------------------------------------------------------------------------------------

    def _connect(self) -> None:
        with socket.create_connection(split(self._primary), _CONNECT_S) as connection:
            self._socket = connection
            try:
                if self._is_stock:
                    shape = self._shape()
                    self._receive(connection, STOCK, shape, lambda: self._forget_end(shape))
                else:
                    self._meet(connection)
            finally:
                self._socket = None

    def _meet(self, connection: socket.socket) -> None:
        """Identify the primary, and check that its log belongs to this one."""
        connection.settimeout(SILENCE_S)
        own = hello_of(self._store, ack=self._ack)
        theirs = greet(connection, own)
        if theirs is None:
            _log.info("primary %s: a stock one, without epochs", self._primary)
            self._is_stock = True  # it took the hello for a report, so another connection is needed
            return
        if theirs.role == Kind.UNSETTLED:
            self._give_back(connection, theirs)
            return
        check_lineage(own, theirs)
        self._receive(connection, OURS, theirs.shape, lambda: self._adopt(theirs))

    def _receive(
        self, connection: socket.socket, wire: Wire, shape: LogShape | None, joined: Callable[[], None]
    ) -> None:
        joining = Joining(self._log, self._store.config.commit_log_file_bytes, shape)
        receiving = Receiving(
            self._store, connection, self._log, joining, self._ack, self._heard, wire=wire, joined=joined
        )
        receiving.run(self._ended)

    def _give_back(self, connection: socket.socket, theirs: Hello) -> None:
        """Send the log to a primary that has lost power; it checks that the log is its own."""
        self._lose("it has lost power, and is given what is here")
        Sender(self._store, connection, self._primary, lambda: None).give_back(theirs)

    def _adopt(self, theirs: Hello) -> None:
        """Adopt the primary's history, because the logs agree."""
        with self._store.lock.held(TOPIC_BYTE):
            write_lineage(self._store.root, theirs.lineage)
        self._forget_end(theirs.shape)

    def _forget_end(self, shape: LogShape | None) -> None:
        """Take the primary's current end, even a lower one: it may have lost bytes that were never sent."""
        if shape is not None:
            self._seen = replace(self._seen, primary_end=shape.end)

    def _shape(self) -> LogShape | None:
        """Ask for the shape of the primary's log; None if its broker does not answer, which is not fatal."""
        try:
            with BrokerClient(self._broker) as broker:
                return broker.log_shape()
        except (BrokerUnreachable, RemotingError) as error:
            _log.warning("the broker of the primary does not say how its log is: %s", error)
            return None

    def _heard(self, primary_end: int) -> None:
        if self._seen.problem:
            _log.info("primary %s: following from %d", self._primary, self._log.end)
        now, known = clock.wall_ms(), max(self._seen.primary_end, primary_end)
        level_ms = now if self._log.end >= known else self._seen.level_ms
        self._seen = replace(self._seen, contact_ms=now, primary_end=known, level_ms=level_ms, problem="")

    def _note(self, problem: str) -> None:
        self._seen = replace(self._seen, problem=problem)

    # --- what the log does not contain ----------------------------------------------------------------

    def _ask_broker(self) -> None:
        with BrokerClient(self._broker) as broker:
            settings, problem, turn = SettingsOfPrimary(self._store, broker), "", 0
            while not self._ended.is_set():
                try:
                    if turn % _PROGRESS_IN_A_ROW == 0:
                        settings.take_settings()
                    settings.take_progress()
                    problem, turn = "", turn + 1
                except QueueError as error:
                    if str(error) != problem:
                        _log.warning("topics and offsets of the primary were not taken over: %s", error)
                    problem = str(error)
                with suppress(QueueError):
                    write_seen(self._store.root, self._seen)
                self._ended.wait(_ASK_S)
