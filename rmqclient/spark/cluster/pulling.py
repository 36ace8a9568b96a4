"""Pulling: the records of a range of one queue, with many requests under way at once.

A broker gives few messages per request (32 by default, or 8 from the disk), however many are asked for
[MessageStoreConfig.maxTransferCountOnMessageInMemory]. With one request after another, a reader would mostly wait.
Queue offsets are dense, so the range is cut into chunks, and several chunks are requested at the same time. Within a
chunk each request begins where the last answer ended. Chunks are delivered in order. While an answer waits for earlier
ones, its records stay in a buffer of the connection, and are copied only before that is reused.

No request waits at the broker for messages, and none commits an offset.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.net.direct import TURNS, DirectConnection
from rmqclient.cluster.net.templates import template_of
from rmqclient.errors import BrokerUnreachable, RequestTimedOut
from rmqclient.filters.tag import EVERYTHING
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.spark.cluster.answers import Answer, answer_of, found
from rmqclient.spark.cluster.clients import borrow, give_back
from rmqclient.spark.cluster.patience import PATIENCE_S, pause_s
from rmqclient.store import MessageQueue
from rmqclient.store.errors import QueueError

_CHUNK: Final = 32
"""Messages of a chunk: a broker's default for one request, so that answers come nearly in order."""
_FIRST_CHUNK: Final = 256
"""Messages of the first chunk, which shows whether this broker gives more at once."""
_BUFFERED_BYTES: Final = 64 << 20
"""Bytes of buffered answers beyond which only the first chunk continues."""

_WITH_SUBSCRIPTION: Final = 4  # PullSysFlag


@dataclass(eq=False, slots=True)
class _Chunk:
    """A range of offsets, requested by one request after another. Times are in monotonic seconds."""

    next: int
    stop: int
    answers: deque[Answer] = field(default_factory=deque)
    asked_at: float = 0.0
    ask_at: float = 0.0
    failures: int = 0
    fails_at: float = 0.0

    @property
    def is_done(self) -> bool:
        return self.next >= self.stop

    def keep_answers(self) -> None:
        """Copy the records, because their buffer is about to be reused."""
        if self.answers:
            self.answers = deque(answer._replace(records=bytes(answer.records)) for answer in self.answers)


class Pull:
    """Reads one range of one queue. For use by one thread; ``queue`` and ``group`` have the names of the wire.

    ``tags`` is a subscription by tag. At most ``at_once`` requests are under way.
    """

    def __init__(
        self,
        client: ClusterClient,
        group: str,
        queue: MessageQueue,
        offsets: range,
        *,
        tags: str = EVERYTHING,
        at_once: int,
    ) -> None:
        self._client = client
        self._queue = queue
        self._tags = tags
        asked = request(
            RequestCode.PULL_MESSAGE,
            consumerGroup=group,
            topic=queue.topic,
            queueId=queue.queue_id,
            queueOffset=0,
            maxMsgNums=1,
            sysFlag=_WITH_SUBSCRIPTION,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription=tags,
            subVersion=0,
            expressionType="TAG",
        )
        self._write = template_of(asked, ("queueOffset", "maxMsgNums"), client.url.keys)
        self._at_once = at_once
        self._chunk_size = _CHUNK
        self._start = self._ahead = offsets.start
        self._stop = offsets.stop
        self._chunks: deque[_Chunk] = deque()
        self._ready: list[_Chunk] = []  # to be requested now
        self._failed: list[_Chunk] = []  # to be requested at their time
        self._under_way: dict[int, _Chunk] = {}  # by the opaque of the request, the oldest first
        self._arrived: deque[list[_Chunk]] = deque()  # their answers are views of buffers
        self._connection: DirectConnection | None = None
        self._buffered = 0

    def answers(self) -> Iterator[Answer]:
        """Yield the answers for the whole range, in order of offsets. Records are valid until the next answer is taken.

        Raises the errors of the broker, and BrokerUnreachable or RequestTimedOut if it does not answer for a minute.
        """
        try:
            while self._ahead < self._stop or self._chunks:
                self._ask()
                if not self._chunks[0].answers:
                    self._receive()
                    self._ask()  # before handling answers, so that the broker has work meanwhile
                yield from self._complete()
        finally:
            self._hang_up(keep=not self._under_way)

    def _complete(self) -> Iterator[Answer]:
        """Yield the answers that have come, up to the first missing one."""
        while self._chunks:
            chunk = self._chunks[0]
            while chunk.answers:
                answer = chunk.answers.popleft()
                self._buffered -= len(answer.records)
                yield answer
            if not chunk.is_done:
                return
            self._chunks.popleft()

    def _ask(self) -> None:
        """Send requests for waiting chunks and for new ones, up to the limit of requests under way."""
        if self._failed:
            self._wake(time.monotonic())
        wanted = len(self._under_way) + len(self._ready) + len(self._failed)
        while wanted < self._at_once and self._ahead < self._stop and self._buffered < _BUFFERED_BYTES:
            size = _FIRST_CHUNK if self._ahead == self._start else self._chunk_size
            stop = min(self._ahead + size, self._stop)
            self._chunks.append(_Chunk(self._ahead, stop))
            self._ready.append(self._chunks[-1])
            self._ahead = stop
            wanted += 1
        ready, self._ready = self._ready, []
        if self._buffered >= _BUFFERED_BYTES:
            first = self._chunks[0]
            self._ready = [chunk for chunk in ready if chunk is not first]
            ready = [chunk for chunk in ready if chunk is first]
        if ready:
            self._submit(ready)

    def _wake(self, now: float) -> None:
        """Move failed chunks whose time has come back to the ready ones."""
        self._ready += [chunk for chunk in self._failed if chunk.ask_at <= now]
        self._failed = [chunk for chunk in self._failed if chunk.ask_at > now]

    def _submit(self, chunks: list[_Chunk]) -> None:
        unsent = chunks
        try:
            connection, now, requests = self._connected(), time.monotonic(), b""
            for chunk in chunks:
                opaque = connection.opaque()
                requests += self._write(opaque, chunk.next, chunk.stop - chunk.next)
                chunk.asked_at = now
                self._under_way[opaque] = chunk
            unsent = []
            connection.send(requests)
        except QueueError as error:  # the route has no such broker now, or it cannot be reached
            self._lose(error, unsent)

    def _connected(self) -> DirectConnection:
        if self._connection is None:
            address = self._client.brokers.address(self._queue.broker_name)
            self._connection = borrow(self._client.url, address)
        return self._connection

    def _receive(self) -> None:
        """Wait for answers, or until a chunk may be requested again; take all answers that have come."""
        if self._failed and not self._comes_in(min(chunk.ask_at for chunk in self._failed) - time.monotonic()):
            return
        if len(self._arrived) == TURNS:
            for chunk in self._arrived.popleft():
                chunk.keep_answers()
        assert self._connection is not None
        try:
            quick, others = self._connection.receive()
        except QueueError as error:
            self._lose(error, [])
            return
        self._arrived.append([])
        for opaque, following, records in quick:
            if (asked := self._under_way.pop(opaque, None)) is not None:
                self._add(asked, found(asked.next, asked.stop, following, records))
        for frame, records in others:
            if (asked := self._under_way.pop(frame.opaque, None)) is not None:
                self._take_other(asked, frame, records)
        self._time_out(time.monotonic())

    def _comes_in(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s``; return whether data can be received."""
        if self._under_way and self._connection is not None:
            return self._connection.comes_in(max(0.0, timeout_s))
        time.sleep(max(0.0, timeout_s))
        return False

    def _take_other(self, chunk: _Chunk, frame: Frame, records: memoryview) -> None:
        answer = answer_of(frame, records, chunk.next, chunk.stop, self._tags, self._queue.broker_name)
        if isinstance(answer, Answer):
            self._add(chunk, answer)
        else:
            self._try_again(chunk, answer)

    def _add(self, chunk: _Chunk, answer: Answer) -> None:
        chunk.failures = 0
        chunk.next = answer.stop
        chunk.answers.append(answer)
        self._chunk_size = max(self._chunk_size, answer.stop - answer.start)
        self._buffered += len(answer.records)
        self._arrived[-1].append(chunk)
        if answer.stop < chunk.stop:
            self._ready.append(chunk)

    def _time_out(self, now: float) -> None:
        """Retry requests that had no answer within the URL's time-out."""
        timeout_s = self._client.url.timeout_s
        while self._under_way:
            opaque, chunk = next(iter(self._under_way.items()))
            if now < chunk.asked_at + timeout_s:
                return
            del self._under_way[opaque]
            self._try_again(chunk, RequestTimedOut(f"{self._queue.broker_name}: no answer in {timeout_s:g} s"))

    def _lose(self, error: QueueError, chunks: list[_Chunk]) -> None:
        """Give up the connection; retry these chunks, and requests under way, after a pause."""
        lost = [*self._under_way.values(), *chunks]
        self._under_way = {}
        self._hang_up(keep=False)
        for chunk in lost:
            self._try_again(chunk, error)
        if isinstance(error, BrokerUnreachable):
            with suppress(QueueError):
                self._client.routes.of(self._queue.topic, fresh=True)  # the broker may have moved

    def _try_again(self, chunk: _Chunk, error: QueueError) -> None:
        """Retry a chunk after a pause. Raises ``error`` if a retry cannot help, or after too many of them."""
        now = time.monotonic()
        if not chunk.failures:
            chunk.fails_at = now + PATIENCE_S
        if not error.retryable or now >= chunk.fails_at:
            raise error
        chunk.ask_at = now + pause_s(chunk.failures)
        chunk.failures += 1
        self._failed.append(chunk)

    def _hang_up(self, *, keep: bool) -> None:
        """Give up the connection; with ``keep``, leave it to the next pull."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if keep:
            give_back(self._client.url, connection)
        else:
            connection.close()
