"""Pulling: the records of a range of one queue, with many requests under way at once.

A broker gives few messages per request (32 by default, or 8 from the disk), however many are asked for
[MessageStoreConfig.maxTransferCountOnMessageInMemory]. With one request after the other, a reader would mostly wait.
Queue offsets are dense, so the range is cut into chunks, and several chunks are asked for at the same time. Within a
chunk each request begins where the last answer ended. Chunks are handed over in their order.

===============================  =====================================================================================
answer                           meaning
===============================  =====================================================================================
SUCCESS                          records, up to ``nextBeginOffset``
PULL_RETRY_IMMEDIATELY           no record up to ``nextBeginOffset``: none has a wanted tag, or they are gone
PULL_NOT_FOUND                   the same, as for a hole in the queue; or the queue ends here
PULL_OFFSET_MOVED                the queue begins behind the offset, or ends before it
===============================  =====================================================================================

No request waits at the broker for messages, and none commits an offset.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.errors import BrokerUnreachable, ClusterError
from rmqclient.filters.tag import EVERYTHING
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError, error_of
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, response_field, response_fields
from rmqclient.spark.cluster.patience import PATIENCE_S, pause_s
from rmqclient.store import MessageQueue
from rmqclient.store.errors import QueueError

_CHUNK: Final = 256
_BUFFERED_BYTES: Final = 64 << 20
"""With this many bytes of answers that nobody has taken, only the first chunk goes on."""

_WITH_SUBSCRIPTION: Final = 4  # PullSysFlag


class Answer(NamedTuple):
    """What a broker said about the queue offsets from ``start`` to ``stop``, exclusive."""

    start: int
    stop: int
    records: bytes
    lost: str
    """Why no record of this range exists any more; empty if this is no loss."""
    following: int
    """Where the broker has the next record, at ``stop`` or above."""


@dataclass(eq=False)
class _Chunk:
    """A range of offsets that is asked for by one request after the other."""

    next: int
    stop: int
    answers: deque[Answer] = field(default_factory=deque)
    ask_at: float = 0.0
    failures: int = 0
    fails_at: float = 0.0

    @property
    def is_done(self) -> bool:
        return self.next >= self.stop


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
        self._wanted = request(
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
        self._at_once = at_once
        self._ahead = offsets.start
        self._stop = offsets.stop
        self._chunks: deque[_Chunk] = deque()
        self._ready: list[_Chunk] = []  # to be asked for now
        self._failed: list[_Chunk] = []  # to be asked for at their time
        self._arrived: SimpleQueue[tuple[_Chunk, Frame | QueueError]] = SimpleQueue()
        self._buffered = 0

    def answers(self) -> Iterator[Answer]:
        """Yield the answers for the whole range, in the order of offsets.

        Raises the errors of the broker, and BrokerUnreachable or RequestTimedOut if it does not answer for a minute.
        """
        while self._ahead < self._stop or self._chunks:
            self._ask()
            chunk = self._chunks[0]
            while chunk.answers:
                answer = chunk.answers.popleft()
                self._buffered -= len(answer.records)
                yield answer
            if chunk.is_done:
                self._chunks.popleft()
            else:
                self._receive()

    def _ask(self) -> None:
        while len(self._chunks) < self._at_once and self._ahead < self._stop:
            stop = min(self._ahead + _CHUNK, self._stop)
            self._chunks.append(_Chunk(self._ahead, stop))
            self._ready.append(self._chunks[-1])
            self._ahead = stop
        if self._failed:
            self._wake(time.monotonic())
        ready, self._ready = self._ready, []
        if self._buffered >= _BUFFERED_BYTES:
            first = self._chunks[0]
            self._ready = [chunk for chunk in ready if chunk is not first]
            ready = [chunk for chunk in ready if chunk is first]
        if ready:
            self._submit(ready)

    def _wake(self, now: float) -> None:
        """Let the chunks that failed be asked for again whose time has come."""
        self._ready += [chunk for chunk in self._failed if chunk.ask_at <= now]
        self._failed = [chunk for chunk in self._failed if chunk.ask_at > now]

    def _submit(self, chunks: list[_Chunk]) -> None:
        try:
            address = self._client.routes.address(self._queue.broker_name)
        except ClusterError as error:  # the route has no such broker now
            for chunk in chunks:
                self._arrived.put((chunk, error))
        else:
            self._client.submit_all(address, [(self._request(chunk), partial(self._came, chunk)) for chunk in chunks])

    def _request(self, chunk: _Chunk) -> Frame:
        place = {"queueOffset": str(chunk.next), "maxMsgNums": str(chunk.stop - chunk.next)}
        return Frame(self._wanted.code, self._wanted.fields | place)

    def _came(self, chunk: _Chunk, came: Frame | QueueError) -> None:
        self._arrived.put((chunk, came))

    def _receive(self) -> None:
        """Wait for an answer, or until a chunk may be asked for again; take all answers that are there."""
        timeout_s = None
        if self._failed:
            timeout_s = max(0.0, min(chunk.ask_at for chunk in self._failed) - time.monotonic())
        try:
            arrived = self._arrived.get(timeout=timeout_s)
            while True:
                self._take(*arrived)
                arrived = self._arrived.get_nowait()
        except Empty:
            return

    def _take(self, chunk: _Chunk, came: Frame | QueueError) -> None:
        if isinstance(came, Frame):
            answer = self._answer(chunk, came)
            if isinstance(answer, Answer):
                chunk.failures = 0
                chunk.next = answer.stop
                chunk.answers.append(answer)
                self._buffered += len(answer.records)
                if not chunk.is_done:
                    self._ready.append(chunk)
                return
            came = answer
        self._try_again(chunk, came)

    def _try_again(self, chunk: _Chunk, error: QueueError) -> None:
        """Ask for a chunk again in a moment. Raises ``error`` if that does not help, or has not helped for too long."""
        now = time.monotonic()
        if not chunk.failures:
            chunk.fails_at = now + PATIENCE_S
        if not error.retryable or now >= chunk.fails_at:
            raise error
        if isinstance(error, BrokerUnreachable):
            with suppress(QueueError):
                self._client.routes.of(self._queue.topic, fresh=True)  # the broker may have moved
        chunk.ask_at = now + pause_s(chunk.failures)
        chunk.failures += 1
        self._failed.append(chunk)

    def _answer(self, chunk: _Chunk, frame: Frame) -> Answer | AnswerError:
        """Return what an answer says of the offsets that were asked for, or the error that it is."""
        start = chunk.next
        if frame.code not in _KNOWN:
            return error_of(frame, self._queue.broker_name)
        following = response_field(RequestCode.PULL_MESSAGE, frame, "nextBeginOffset")
        if frame.code == ResponseCode.SUCCESS and following > start:
            return Answer(start, min(following, chunk.stop), frame.body, "", following)
        fields = response_fields(RequestCode.PULL_MESSAGE, frame)
        oldest, end = fields["minOffset"], fields["maxOffset"]
        if oldest > start:
            lost = f"removed: the oldest message is {oldest}"
            return Answer(start, min(oldest, chunk.stop), b"", lost, oldest)
        if end <= start or following <= start:
            return Answer(start, chunk.stop, b"", f"the queue ends at {end}", chunk.stop)
        is_selected = self._tags != EVERYTHING and frame.remark not in _GONE
        lost = "" if is_selected else f"the broker has no record of it ({frame.remark})"
        return Answer(start, min(following, chunk.stop), b"", lost, following)


_KNOWN: Final = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
)
_GONE: Final = frozenset(("MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL"))  # GetMessageStatus
