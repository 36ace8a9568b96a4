"""Relay: sends the messages that committed transactions wrote to an outbox.

One relay at a time handles the rows, in three steps, and can be killed anywhere:

=================  ====================================  ==============================================================
step               the row after it                      the next relay
=================  ====================================  ==============================================================
claim, committed   ``state`` 1: it may have been sent    looks in the store for a message with the row's unique key:
                                                         if it finds one, it marks the row; otherwise it frees the row
send, flushed      the same                              the same
mark, committed    ``state`` 2, with its message id      nothing
=================  ====================================  ==============================================================

So each row is sent once. The unique key, ``outbox-`` and 32 digits, is one of the message's keys, so a handler can
recognise the message by it, too. If the store refuses a message for good, its row gets state 3 and the reason. If its
topic takes no messages now, the rows of the topic wait in their order, and those of other topics do not.

This rests on three facts. The lock of a relay ends when its process dies (:mod:`rmqclient.databases.relay_lock`). An
append that a death interrupted is settled before the message is looked for. And the row is marked only when the message
is on disk. Rows are sent in the order of their numbers. With PostgreSQL that is the order in which transactions wrote
them, which can differ from the order of their commits.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self

from rmqclient.backend.protocols import ProducerSettings
from rmqclient.databases.outbox import CLAIMED, NEW, REFUSED, SENT, Row
from rmqclient.databases.relay_lock import Unlock
from rmqclient.duration import Duration, in_seconds
from rmqclient.message import ReceivedMessage, SendResult
from rmqclient.names import OUTBOX_GROUP
from rmqclient.opening import Place, open_backend
from rmqclient.sending.compressor import OVER_BYTES
from rmqclient.sending.producer import Producer
from rmqclient.store import TIMER_TOPIC, clock
from rmqclient.store.bodies import Compression
from rmqclient.store.closing import Closing
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import MessageRejected, TableFull, UnknownTopic
from rmqclient.store.log.query import END_OF_TIME
from rmqclient.store.numbers import whole
from rmqclient.store.threads.guarded import GuardedThread, is_for_the_program
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_NEXT_LOOK_S = 1.0
"""Seconds between two checks whether the working relay has ended; each check is a connection."""
_CLOSED_FOR_S = 5.0
"""Seconds between two tries of the rows of a topic that takes no messages."""


class Session(Protocol):
    """The methods that a relay needs of a connection: sqlite3, psycopg, SQLAlchemy, and a wrapper for Django."""

    def commit(self) -> None:
        """End the transaction."""

    def rollback(self) -> None:
        """Undo the transaction."""

    def close(self) -> None:
        """End the session."""


class Table(Protocol):
    """The methods that a relay needs of an outbox. ``connection`` is a result of the relay's ``connect``."""

    @property
    def table(self) -> str:
        """Its name, for log lines."""

    def rows(self, connection: Any, state: int, limit: int, /) -> list[Row]:
        """Return the first ``limit`` rows in a state, in the order of their numbers."""

    def mark(self, connection: Any, row: Row, state: int, message_id: str | None, refusal: str | None, /) -> None:
        """Set the state of a row, and the message id or the reason of the refusal."""

    def lock(self, connection: Any, /) -> Unlock | None:
        """Lock the table for this relay; return the function that unlocks it. None if another relay has the lock."""


class Relay(Closing):
    """Sends the messages of an outbox; a context manager. ``connect`` opens a connection for the relay alone.

    ``outbox`` is an :class:`rmqclient.Outbox`, or that of a framework (:mod:`rmqclient.frameworks`).
    ``root`` is the directory of a store or an open store. Bodies are compressed as by :class:`Producer`.
    """

    def __init__(
        self,
        root: Place,
        outbox: Table,
        connect: Callable[[], Session],
        *,
        batch: int = 100,
        interval: Duration = 0.1,
        compression: Compression | None = None,
        compress_over_bytes: int = OVER_BYTES,
        compression_level: int | None = None,
    ) -> None:
        self._interval_s = in_seconds("interval", interval)
        if self._interval_s == 0:
            raise ValueError(f"interval={interval!r}: must be positive")
        whole("batch", batch, 1)
        self._backend = open_backend(root)
        try:
            self._flusher = self._backend.producers.sender(ProducerSettings(self._backend.topics.queues))
            self._producer = Producer(
                self._backend,
                group=OUTBOX_GROUP,
                compression=compression,
                compress_over_bytes=compress_over_bytes,
                compression_level=compression_level,
            )
        except BaseException:
            self._backend.close()
            raise
        self._outbox = outbox
        self._connect = connect
        self._batch = batch
        self._connection: Session | None = None
        self._lock: Unlock | None = None
        self._is_settled = False
        self._closed_until: dict[str, float] = {}
        """By topic, until when no row of it is tried, by the clock's ``elapsed``."""
        self._held = 0
        """Rows of such topics among those that were read last."""

    def run(self, ended: threading.Event) -> None:
        """Send messages as they come, until ``ended`` is set. Failures are logged and retried.

        The connection is made and closed on the calling thread.
        """
        try:
            while not ended.is_set():
                if not self._send_or_log():
                    is_at_work = self._connection is not None
                    ended.wait(self._interval_s if is_at_work else max(self._interval_s, _NEXT_LOOK_S))
        finally:
            self._leave()

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """As :meth:`run`, on a thread of this process until the block ends; then close."""
        ended = threading.Event()
        thread = GuardedThread(target=self.run, args=(ended,), name="rmq-relay")
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()
            self.close()

    def send(self) -> int:
        """Send one batch; return the number of handled rows: 0 if no row waits or another relay has the lock.

        Raises the errors of the database, and as a send. The rows then wait for the next call.
        """
        try:
            connection = self._connected()
            if connection is None:
                return 0
            if not self._is_settled:
                self._settle(connection)
            return self._send_batch(connection)
        except BaseException:
            self._leave()
            raise

    def close(self) -> None:
        """Leave the database and the store."""
        self._leave()
        self._flusher.close()
        self._producer.close()
        self._backend.close()

    def _send_or_log(self) -> int:
        try:
            return self.send()
        except BaseException as error:  # a database has errors of its own, and SystemExit would end the thread
            if is_for_the_program(error):
                raise
            _log.exception("outbox %s: trying again", self._outbox.table)
            return 0

    def _send_batch(self, connection: Session) -> int:
        rows = self._due(self._outbox.rows(connection, NEW, self._batch + self._held))
        if not rows:
            connection.rollback()
            return 0
        for row in rows:
            self._outbox.mark(connection, row, CLAIMED, None, None)
        connection.commit()
        reach(CrashPoint.OUTBOX_CLAIMED)
        sent = [(row, self._send(row)) for row in rows]
        flushed_to = max((result.commit_log_end for _, result in sent if isinstance(result, SendResult)), default=0)
        self._flusher.wait_until_flushed(flushed_to)
        reach(CrashPoint.OUTBOX_SENT)
        for row, result in sent:
            if isinstance(result, SendResult):
                self._outbox.mark(connection, row, SENT, result.message_id, None)
            elif result is None:
                self._outbox.mark(connection, row, NEW, None, None)
            else:
                self._outbox.mark(connection, row, REFUSED, None, str(result))
        connection.commit()
        return sum(result is not None for _, result in sent)

    def _due(self, rows: list[Row]) -> list[Row]:
        """Leave out the rows of topics that took no message a moment ago: they hold no other topic's."""
        due = [row for row in rows if not self._is_closed(row.topic)]
        self._held = len(rows) - len(due)
        return due

    def _is_closed(self, topic: str) -> bool:
        return self._closed_until.get(topic, -math.inf) > clock.elapsed()

    def _send(self, row: Row) -> SendResult | Exception | None:
        """Send a row; return None if its topic takes no messages now, and the error if it can never be sent."""
        if self._is_closed(row.topic):  # since an earlier row of this batch
            return None
        try:
            return self._producer.send(row.message(), sharding_key=row.sharding_key or None, deliver_at=row.deliver_at)
        except (UnknownTopic, TableFull) as error:
            _log.error("outbox %s: row %d has to wait: %s", self._outbox.table, row.id, error)
            self._closed_until[row.topic] = clock.elapsed() + _CLOSED_FOR_S
            return None
        except (MessageRejected, ValueError, TypeError, OverflowError) as error:  # an InvalidName is one
            _log.error("outbox %s: row %d can never be sent: %s", self._outbox.table, row.id, error)
            return error

    def _settle(self, connection: Session) -> None:
        """Find out which claimed rows were sent by a relay that died or failed before it marked them."""
        self._backend.messages.settle()
        while rows := self._outbox.rows(connection, CLAIMED, self._batch):
            flushed_to = 0
            for row in rows:
                found = self._found(row)
                if found:
                    flushed_to = max(flushed_to, found[0].commit_log_offset + found[0].size)
                    self._outbox.mark(connection, row, SENT, found[0].message_id, None)
                else:
                    self._outbox.mark(connection, row, NEW, None, None)
            self._flusher.wait_until_flushed(flushed_to)
            connection.commit()
        connection.rollback()
        self._is_settled = True

    def _found(self, row: Row) -> list[ReceivedMessage]:
        """Look for the message of a row in its topic, and among delayed messages."""
        by_key = self._backend.messages.by_key
        try:
            row.message()
            topics = (row.topic,) if row.deliver_at is None else (row.topic, TIMER_TOPIC)
            return next(filter(None, (by_key(topic, row.unique_key, 0, END_OF_TIME, 1) for topic in topics)), [])
        except (ValueError, TypeError, OverflowError):  # it is no message, so it was not sent
            return []

    def _connected(self) -> Session | None:
        """Return the connection if this relay has the lock, else None."""
        if self._connection is None:
            connection = self._connect()
            try:
                lock = self._outbox.lock(connection)
            except BaseException:
                connection.close()
                raise
            if lock is None:
                connection.close()
                return None
            self._connection, self._lock = connection, lock
        return self._connection

    def _leave(self) -> None:
        connection, lock, self._connection, self._lock = self._connection, self._lock, None, None
        self._is_settled = False
        if connection is not None:
            with contextlib.suppress(Exception):  # it may be what has failed; it is closed either way
                connection.rollback()
            with contextlib.suppress(Exception):
                connection.close()
        if lock is not None:
            lock()
