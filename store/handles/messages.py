"""Messages: reads the messages of an open store, by place, by id, by key and by time.

All but :meth:`StoredMessages.read` answer for one moment: retention and compaction may remove a message behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from rmqclient.store import layout
from rmqclient.store.errors import MessageExpired, StoreCorrupt
from rmqclient.store.handles.appenders import QUEUES_OF_WAITING
from rmqclient.store.kernel._kernel import ReceivedMessage
from rmqclient.store.log import commit_log, query
from rmqclient.store.log.dispatch import IndexDispatch
from rmqclient.store.log.index_file import IndexFiles
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.texts import is_utf8
from rmqclient.store.upkeep.compaction import Compaction


class StoredMessages:
    """The messages of one open store. Safe for threads.

    ``oldest`` returns the queue offset of the oldest message that was not removed, by the slot of its queue. Every
    method raises what ``check_usable`` raises, which is StoreClosed after the store was closed.
    """

    def __init__(
        self,
        parts: Parts,
        index_files: IndexFiles,
        index: IndexDispatch,
        compaction: Compaction,
        oldest: Callable[[int], int],
        check_usable: Callable[[], None],
    ) -> None:
        self._state = parts.state
        self._topics = parts.topics
        self._log_files = parts.log_files
        self._consume_queues = parts.consume_queues
        self._limit_bytes = parts.config.max_opened_body_bytes
        self._index_files = index_files
        self._index = index
        self._compaction = compaction
        self._oldest = oldest
        self._check_usable = check_usable

    def read(self, commit_log_offset: int) -> ReceivedMessage:
        """Return the message at an offset of the commit log. Raises MessageExpired, StoreCorrupt."""
        self._check_usable()
        try:
            return commit_log.read(self._log_files, commit_log_offset).limited_to(self._limit_bytes)
        except StoreCorrupt:
            if commit_log_offset >= self._state.min_offset:
                raise
        raise MessageExpired(
            f"the record at {commit_log_offset} was removed: the log begins at {self._state.min_offset} now"
        )

    def oldest(self, queue: MessageQueue) -> int:
        """Return the queue offset of the oldest message that was not removed. Raises UnknownTopic."""
        return self._oldest(self._topics.slot(queue))

    def at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        """Return a message by its place in a queue, below the max offset. Raises MessageExpired, StoreCorrupt."""
        self._check_usable()
        if (found := self._compacted(queue, queue_offset)) is not None:
            return found
        consume_queue = self._consume_queues[queue]
        if queue_offset >= self._topics.min_offset(queue):
            try:
                return self.read(consume_queue.entry(queue_offset).commit_log_offset)
            except FileNotFoundError:
                if queue_offset >= self.oldest(queue):
                    first = consume_queue.first_entry_of(queue_offset)
                    path = consume_queue.files.path(first * layout.CONSUME_QUEUE_ENTRY.size)
                    position = (queue_offset - first) * layout.CONSUME_QUEUE_ENTRY.size
                    raise StoreCorrupt(path, position, "the file is missing") from None
        raise MessageExpired(
            f"message {queue_offset} of {queue} was removed: the queue begins at {self._topics.min_offset(queue)} now"
        )

    def by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """Return a message by its unique id or its offset message id; None when no message has the id.

        Without ``topic`` it searches every topic for a unique id. The unique id of a message in a batch gives that
        message. It brings the index up to date first: raises StoreFull when there is no room for it, and StoreBusy.
        """
        self._check_usable()
        if not is_utf8(message_id):  # no message can have it
            return None
        found = query.by_offset_id(self._log_files, self._published(), message_id)
        if found is not None and (topic is None or found.topic == topic):
            return found.limited_to(self._limit_bytes)
        self._index.catch_up()
        # Topics of waiting messages come last: a message that was delivered late is found where it was delivered to.
        topics = (
            [topic]
            if topic is not None
            else self._index_files.topics_with(
                sorted(self._topics.topics(), key=QUEUES_OF_WAITING.__contains__), message_id
            )
        )
        return query.by_unique_key(
            self._log_files, self._index_files, self._published(), topics, message_id, self._limit_bytes
        )

    def by_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = query.END_OF_TIME, limit: int = 64
    ) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages of a topic that have a key, the newest first.

        They were stored from ``begin_ms`` to ``end_ms``, both included. Damaged messages are passed over. The index is
        brought up to date first: raises StoreFull when there is no room for it, and StoreBusy.
        """
        self._check_usable()
        if not is_utf8(key):
            return []
        self._index.catch_up()
        stored, published = (begin_ms, end_ms), self._published()
        found = query.by_key(self._log_files, self._index_files, published, topic, key, stored, self._limit_bytes)
        return list(islice(found, limit))

    def topics_with(self, key: str, topics: Sequence[str]) -> list[str]:
        """Return those of some topics that may have messages with a key or unique key, in their order.

        One pass over the index tells it for all of them. It brings the index up to date, and raises, as
        :meth:`by_key`.
        """
        self._check_usable()
        if not is_utf8(key):
            return []
        self._index.catch_up()
        return self._index_files.topics_with(topics, key)

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at a time or later; without one, the max offset.

        Raises UnknownTopic.
        """
        self._check_usable()
        known = range(self._topics.min_offset(queue), self._topics.max_offset(queue))
        if self._topics.is_compact(queue.topic):
            known = range(max(known.start, self._compaction.log_low(queue)), known.stop)
        return query.offset_by_time(self._log_files, self._consume_queues[queue], known, timestamp_ms)

    def _compacted(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage | None:
        """Return a message of a compact topic that the log has lost; None when the log may have it."""
        if not self._topics.is_compact(queue.topic) or queue_offset >= self._compaction.log_low(queue):
            return None
        found_at, found, _ = self._compaction.look(queue, queue_offset)
        if found_at > queue_offset or found is None:
            raise MessageExpired(f"message {queue_offset} of {queue} was compacted: a later one has its key")
        return found

    def _published(self) -> range:
        return range(self._state.min_offset, self._state.published_to)
