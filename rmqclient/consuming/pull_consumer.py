"""Pull consumer: reads queues at offsets of the caller's choice, and keeps a group's offsets when told to.

::

    with PullConsumer("./store", group="reports") as consumer:
        for queue in consumer.queues("orders"):
            offset = consumer.committed_offset(queue) or consumer.min_offset(queue)
            while (result := consumer.pull(queue, offset)).status is not PullStatus.NO_NEW_MESSAGE:
                ...
                offset = result.next_offset
                consumer.commit(queue, offset)

It is no member of its group and has no queue to itself: who pulls what is up to the caller. So ``commit`` is refused
while a member of the group (a handler of an :class:`rmqclient.App`) has the queue: it would undo its acknowledgements.
"""

from __future__ import annotations

import datetime
import enum
import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from rmqclient.filters.tag import TagFilter, parse_tags
from rmqclient.message import ReceivedMessage
from rmqclient.names import check_group
from rmqclient.store import LONGEST_SLEEP_S, MessageQueue, MessageStore, open_store
from rmqclient.store.errors import MessageExpired, OffsetOutOfRange, QueueOwned, StoreCorrupt
from rmqclient.store.log.inner_batch import opened
from rmqclient.store.runtime.group_table import GroupQueueSlot

MAX_LIMIT = 1_024
"""Most messages of one pull. [pullBatchSize]"""

_SCANNED_ENTRIES = 800
"""Most entries that one look passes over, or ``limit`` if that is more. [maxFilterMessageCount, 16,000 bytes]"""

_log = logging.getLogger(__name__)


class PullStatus(enum.Enum):
    """What became of a pull; RocketMQ's names (PullStatus)."""

    FOUND = "found"
    """There are messages."""
    NO_NEW_MESSAGE = "no new message"
    """The offset is the end of the queue: pull it again later."""
    NO_MATCHED_MESSAGE = "no matched message"
    """Messages were there and none with these tags: go on at ``next_offset``."""
    OFFSET_ILLEGAL = "offset illegal"
    """The queue has no such offset: it ends below, or that message was removed. ``next_offset`` is the nearest one."""


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to one pull."""

    status: PullStatus
    next_offset: int
    """Where to go on."""
    min_offset: int
    max_offset: int
    messages: tuple[ReceivedMessage, ...] = ()


class PullConsumer:
    """Reads a store for one group; a context manager, and safe to share between the threads of one process.

    ``root`` is the directory of a store, or an open one. Raises InvalidName, and what
    :func:`rmqclient.store.open_store` raises.
    """

    def __init__(self, root: Path | str | MessageStore, *, group: str) -> None:
        self.group = check_group(group)
        self._own_store = not isinstance(root, MessageStore)
        self._store = root if isinstance(root, MessageStore) else open_store(root, create=False)
        self._members = self._store.members()
        self._bell = self._store.arrival_bell()

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic. Raises UnknownTopic."""
        return self._usable().topics.queues(topic)

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the oldest message. Raises UnknownTopic."""
        return self._usable().topics.min_offset(queue)

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset that the next message will get. Raises UnknownTopic."""
        return self._usable().topics.max_offset(queue)

    def offset_by_time(self, queue: MessageQueue, when: datetime.datetime) -> int:
        """Return the queue offset of the first message stored then or later; the max offset when there is none.

        Raises UnknownTopic, and ValueError for a time without a zone.
        """
        if when.utcoffset() is None:
            raise ValueError(f"when={when!r} names no time zone: write datetime(..., tzinfo=UTC), or .astimezone()")
        return self._usable().queue_offset_by_time(queue, round(when.timestamp() * 1000))

    def pull(
        self, queue: MessageQueue, offset: int, tags: str | None = "*", limit: int = 32, wait_ms: int = 0
    ) -> PullResult:
        """Return up to ``limit`` messages from ``offset`` on, 1 to 1,024, that ``tags`` match.

        At the end of the queue it sleeps, for at most ``wait_ms``, until a message that matches comes; the sender wakes
        it (PullRequestHoldService). Damaged records are logged and stepped over. Changes no offset of the group.

        The messages of a compressed batch have one queue offset and come together, so that there can be more than
        ``limit``. A batch that cannot be opened comes as it is; its ``body`` raises BodyUnreadable, or NotInstalled.

        Raises UnknownTopic; ValueError for the tags, the limit and the time.
        """
        if not 1 <= limit <= MAX_LIMIT:
            raise ValueError(f"limit={limit}: a pull returns 1 to {MAX_LIMIT:,} messages")
        if wait_ms < 0:
            raise ValueError(f"wait_ms={wait_ms}: must not be negative; 0 does not wait")
        wanted = parse_tags(tags)
        deadline = time.monotonic() + wait_ms / 1000
        position, has_waited = offset, False
        while True:
            self._usable()
            heard = self._bell.arm(queue)
            result = self._look(queue, position, wanted, limit)
            left_s = deadline - time.monotonic()
            if result.status is PullStatus.NO_NEW_MESSAGE and left_s > 0:
                has_waited = True
                self._bell.wait(heard, min(left_s, LONGEST_SLEEP_S))
            elif result.status is PullStatus.NO_MATCHED_MESSAGE and has_waited and left_s > 0:
                position = result.next_offset  # what woke it is not for this caller, who still waits
            elif result.status is PullStatus.NO_NEW_MESSAGE and position > offset:
                return replace(result, status=PullStatus.NO_MATCHED_MESSAGE)
            else:
                return result

    def committed_offset(self, queue: MessageQueue) -> int | None:
        """Return where the group goes on in a queue; None when it never committed there. Raises UnknownTopic."""
        store = self._usable()
        slot = store.groups.find(self.group, store.topics.slot(queue))
        return None if slot is None else slot.committed_offset

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Set where the group goes on, forwards or back: every message below ``offset`` counts as finished.

        From its return on it survives any kill; it is written to ``consumerOffset.json`` with those of all groups,
        every five seconds and by the last process that closes the store.

        Raises OffsetOutOfRange above the max offset or below 0, QueueOwned while a member of the group has the queue,
        UnknownTopic, StoreBusy, TableFull.
        """
        store = self._usable()
        max_offset = store.topics.max_offset(queue)
        if not 0 <= offset <= max_offset:
            raise OffsetOutOfRange(f"offset {offset} of {queue}: a group stands at 0 to {max_offset}, where it ends")
        slot = store.groups.find_or_add(self.group, store.topics.slot(queue), offset)
        with slot.locked(store.config.lock_timeout_ms):
            self._check_free(slot, queue)
            slot.seek(offset)

    def close(self) -> None:
        """Leave the store. Closing twice does nothing."""
        if self._own_store:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _usable(self) -> MessageStore:
        self._store.check_usable()
        return self._store

    def _check_free(self, slot: GroupQueueSlot, queue: MessageQueue) -> None:
        owner = self._members.owner(slot)
        if owner is not None:
            raise QueueOwned(
                f"group {self.group!r}: queue {queue.queue_id} of {queue.topic!r} is owned by member "
                f"{owner.client_id!r} (process {owner.pid}), which keeps its offset: commit in another group, or move "
                "this one with `rmq group seek`"
            )

    def _look(self, queue: MessageQueue, offset: int, wanted: TagFilter, limit: int) -> PullResult:
        low, high = self.min_offset(queue), self.max_offset(queue)
        if not low <= offset <= high:
            return PullResult(PullStatus.OFFSET_ILLEGAL, min(max(offset, low), high), low, high)
        if offset == high:
            return PullResult(PullStatus.NO_NEW_MESSAGE, offset, low, high)
        codes = set(map(_low_bits, wanted.tags_codes))
        found: list[ReceivedMessage] = []
        position, left = self._look_below_log(queue, offset, wanted, limit, found)
        stop = min(high, position + left)
        while position < stop and len(found) < limit:
            try:
                message = self._read(queue, position, codes)
            except MessageExpired:  # removed meanwhile
                if found:
                    break
                oldest = max(position + 1, self._store.oldest(self._store.topics.slot(queue)))
                return PullResult(PullStatus.OFFSET_ILLEGAL, min(oldest, high), self.min_offset(queue), high)
            if message is not None:
                found += [each for each in opened(message) if wanted.matches(each.tags)]
            position += 1
        status = PullStatus.FOUND if found else PullStatus.NO_MATCHED_MESSAGE
        return PullResult(status, position, low, high, tuple(found))

    def _look_below_log(
        self, queue: MessageQueue, offset: int, wanted: TagFilter, limit: int, found: list[ReceivedMessage]
    ) -> tuple[int, int]:
        """Add what matches in the compacted file of the queue, if it has one; return where to go on, and how far."""
        left = max(_SCANNED_ENTRIES, limit)
        compacted = self._store.compaction.reader(queue)
        while compacted is not None and left and len(found) < limit:
            offset, message, _ = compacted(offset)
            if message is None:
                break
            if wanted.matches(message.tags):
                found.append(message)
            offset, left = offset + 1, left - 1
        return offset, left

    def _read(self, queue: MessageQueue, offset: int, codes: set[int]) -> ReceivedMessage | None:
        """Return a message; None when its entry has none of the tags' hashes, or its record is damaged."""
        if codes:
            entry = self._store.consume_queues[queue].entry_or_none(offset)
            if entry is not None and _low_bits(entry.tags_code) not in codes:
                return None
        try:
            return self._store.message_at(queue, offset)
        except StoreCorrupt as error:
            _log.error("message %d of %s is damaged; it was stepped over: %s", offset, queue, error)
            return None


def _low_bits(code: int) -> int:
    """What RocketMQ compares of a tags code (DefaultMessageFilter.isMatchedByConsumeQueue): the low 32 bits."""
    return code & 0xFFFF_FFFF
