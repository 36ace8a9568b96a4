"""Pull consumer: reads queues at any offset, and keeps a group's offsets if the caller commits them.

::

    with PullConsumer("./store", group="reports") as consumer:
        for queue in consumer.queues("orders"):
            offset = consumer.committed_offset(queue) or consumer.min_offset(queue)
            while (result := consumer.pull(queue, offset)).status is not PullStatus.NO_NEW_MESSAGE:
                ...
                offset = result.next_offset
                consumer.commit(queue, offset)

A pull consumer is not a member of its group and owns no queue: the caller decides which process pulls what. So
``commit`` is refused while a member of the group, a handler of an :class:`rmqclient.App`, has the queue: the commit
would undo the acknowledgements of that member.
"""

from __future__ import annotations

import datetime
from dataclasses import replace
from functools import partial

from rmqclient.backend.pull_result import PullResult, PullStatus
from rmqclient.consuming.messages import From, Messages
from rmqclient.duration import Duration, in_seconds
from rmqclient.filters.tag import parse_tags
from rmqclient.names import check_group
from rmqclient.opening import Place, open_backend
from rmqclient.store import LONGEST_SLEEP_S, MessageQueue, clock
from rmqclient.store.closing import Closing
from rmqclient.store.errors import OffsetOutOfRange
from rmqclient.store.numbers import whole
from rmqclient.tracing.incoming import observed_read
from rmqclient.tracing.observers import observers_of

MAX_LIMIT = 1_024
MOST_OFFSET = 2**63 - 1
"""Most messages of one pull. [pullBatchSize]"""


class PullConsumer(Closing):
    """Reads a store for one group; a context manager, and safe to share between the threads of one process.

    ``root`` is the directory of a store, or an open one. Raises InvalidName, and what
    :func:`rmqclient.store.open_store` raises.
    """

    def __init__(self, root: Place, *, group: str) -> None:
        self.group = check_group(group)
        self._backend = open_backend(root, create=False)
        self._observers = observers_of(self._backend)
        self._read = observed_read(self._backend.queues.read, self.group, self._observers)
        self._bell = self._backend.queues.bell()

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic. Raises UnknownTopic."""
        return self._backend.topics.read_queues(topic)

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the oldest message. Raises UnknownTopic."""
        return self._backend.queues.span(queue).min_offset

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset that the next message will get. Raises UnknownTopic."""
        return self._backend.queues.span(queue).max_offset

    def offset_by_time(self, queue: MessageQueue, when: datetime.datetime) -> int:
        """Return the queue offset of the first message stored then or later; the max offset when there is none.

        Raises UnknownTopic, and ValueError for a time without a zone.
        """
        if when.utcoffset() is None:
            raise ValueError(f"when={when!r} names no time zone: write datetime(..., tzinfo=UTC), or .astimezone()")
        return self._backend.queues.offset_by_time(queue, round(when.timestamp() * 1000))

    def pull(
        self, queue: MessageQueue, offset: int, tags: str | None = "*", limit: int = 32, wait: Duration = 0.0
    ) -> PullResult:
        """Return up to ``limit`` messages from ``offset`` on, 1 to 1,024, that ``tags`` match.

        At the end of the queue it sleeps, for at most ``wait``, a timedelta or seconds, until a message that matches
        comes; the sender wakes it (PullRequestHoldService). Damaged records are logged and stepped over. Changes no
        offset of the group.

        The messages of a compressed batch have one queue offset and come together, so that there can be more than
        ``limit``. A batch that cannot be opened comes as it is; its ``body`` raises BodyUnreadable, or NotInstalled.

        Raises UnknownTopic; ValueError for the tags, the limit and the time.
        """
        whole("offset", offset, -MOST_OFFSET, MOST_OFFSET)
        whole("limit", limit, 1, MAX_LIMIT)
        wanted = parse_tags(tags)
        deadline = clock.elapsed() + in_seconds("wait", wait)
        position, has_waited = offset, False
        while True:
            heard = self._bell.arm(queue)
            result = self._read(queue, position, limit, wanted)
            left_ms = (deadline - clock.elapsed()) * 1000
            if result.status is PullStatus.NO_NEW_MESSAGE and left_ms > 0:
                has_waited = True
                self._bell.wait(heard, min(clock.real_s(left_ms / 1000), LONGEST_SLEEP_S))
            elif result.status is PullStatus.NO_MATCHED_MESSAGE and has_waited and left_ms > 0:
                position = result.next_offset  # what woke it is not for this caller, who still waits
            elif result.status is PullStatus.NO_NEW_MESSAGE and position > offset:
                return replace(result, status=PullStatus.NO_MATCHED_MESSAGE)
            else:
                return result

    def messages(
        self, topic: str, *, start: From = "earliest", tags: str | None = "*", wait: Duration | None = None
    ) -> Messages:
        """Return the messages of a topic that ``tags`` match, for ``for`` and for ``async for``.

        Reading begins in each queue at ``"earliest"``, at ``"latest"``, at the first message that was stored at a time,
        or with ``"committed"`` where the group goes on, else at the oldest message. The loop waits for the next message
        for ever, or for ``wait``, a timedelta or seconds, after which it ends; 0 reads what is there. What retention
        removes meanwhile is stepped over.

        No offset of the group changes unless :meth:`Messages.commit` is called. Raises UnknownTopic; ValueError for the
        tags, the start and the wait.
        """
        wanted, wait_s = parse_tags(tags), None if wait is None else in_seconds("wait", wait)
        return Messages(self._backend, self._read, topic, wanted, partial(self._start_of, start), self.commit, wait_s)

    def _start_of(self, start: From, queue: MessageQueue) -> int:
        if isinstance(start, datetime.datetime):
            return self.offset_by_time(queue, start)
        if start == "latest":
            return self.max_offset(queue)
        if start == "committed" and (committed := self.committed_offset(queue)) is not None:
            return committed
        if start not in ("earliest", "committed"):
            raise ValueError(f"start={start!r}: give 'earliest', 'latest', 'committed' or a datetime with a time zone")
        return self.min_offset(queue)

    def committed_offset(self, queue: MessageQueue) -> int | None:
        """Return where the group goes on in a queue; None when it never committed there. Raises UnknownTopic."""
        return self._backend.groups.committed_offset(self.group, queue)

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Set where the group goes on, forwards or back: every message below ``offset`` counts as finished.

        From its return on it survives any kill; it is written to ``consumerOffset.json`` with those of all groups,
        every five seconds and by the last process that closes the store.

        Raises OffsetOutOfRange above the max offset or below 0, QueueOwned while a member of the group has the queue,
        UnknownTopic, StoreBusy, TableFull.
        """
        whole("offset", offset, -MOST_OFFSET, MOST_OFFSET)
        max_offset = self.max_offset(queue)
        if not 0 <= offset <= max_offset:
            raise OffsetOutOfRange(f"offset {offset} of {queue}: a group stands at 0 to {max_offset}, where it ends")
        self._backend.groups.commit(self.group, queue, offset)

    def close(self) -> None:
        """Leave the store. Closing twice does nothing."""
        for observer in self._observers:
            observer.close()
        self._backend.close()
