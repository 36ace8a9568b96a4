"""Stored copies: the records of a message's steps, and the copies of it that wait or waited, found by its id."""

from __future__ import annotations

from collections.abc import Iterator

from rmqclient.backend.backend import Backend
from rmqclient.failures.retry import retry_topic
from rmqclient.message import MessageQueue, ReceivedMessage
from rmqclient.names import RETRY_PREFIX, STEPS_PREFIX
from rmqclient.store import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqclient.store.log.query import END_OF_TIME

_MOST_RECORDS = 1 << 20
_MOST_COPIES = 1_000


class StoredCopies:
    """What a store has of the messages of one group, besides the messages themselves. Safe for threads."""

    def __init__(self, backend: Backend, group: str) -> None:
        self._messages = backend.messages
        self._groups = backend.groups
        self._group = group
        self._topic = STEPS_PREFIX + group
        self._retry_topic = retry_topic(group)

    def later_than(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """Return the newest copy that was stored after a message, waiting or delivered, or None."""
        message_id = id_of(message)
        later = [
            copy
            for topic in (TIMER_TOPIC, SCHEDULE_TOPIC, self._retry_topic)
            for copy in self.copies(topic, message_id)
            if copy.commit_log_offset > message.commit_log_offset
        ]
        return max(later, key=lambda copy: copy.commit_log_offset, default=None)

    def is_finished(self, copy: ReceivedMessage) -> bool:
        """Return whether a copy was delivered and acknowledged. Then all of its records are stored."""
        if copy.topic != self._retry_topic:
            return False
        queue = MessageQueue(copy.topic, copy.queue_id)
        return copy.queue_offset < (self._groups.committed_offset(self._group, queue) or 0)

    def records(self, message_id: str, *, is_copy: bool) -> Iterator[ReceivedMessage]:
        """Yield the records of a message; with ``is_copy`` those in the timer, too."""
        yield from self._by_key(self._topic, message_id, _MOST_RECORDS)
        if not is_copy:
            return
        yield from self.records_in_timer(message_id)

    def records_in_timer(self, message_id: str) -> Iterator[ReceivedMessage]:
        """Yield the records of a message that are kept in the timer."""
        for message in self._by_key(TIMER_TOPIC, message_id, _MOST_RECORDS):
            if message.properties.get("REAL_TOPIC") == self._topic:
                yield message

    def waiting(self, message_id: str) -> Iterator[ReceivedMessage]:
        """Yield messages with an id that wait, or waited, in the timer: copies for this group, or a delayed message."""
        for topic in (TIMER_TOPIC, SCHEDULE_TOPIC):
            for message in self._by_key(topic, message_id, _MOST_COPIES):
                place = message.properties.get("REAL_TOPIC", self._topic)
                is_elsewhere = place.startswith(RETRY_PREFIX) and place != self._retry_topic
                if message.message_id == message_id and place != self._topic and not is_elsewhere:
                    yield message

    def copies(self, topic: str, message_id: str) -> Iterator[ReceivedMessage]:
        """Yield the copies of a message for this group in a topic."""
        for message in self._by_key(topic, message_id, _MOST_COPIES):
            place = message.properties.get("REAL_TOPIC") if topic != self._retry_topic else topic
            if place == self._retry_topic and message.message_id == message_id:
                yield message

    def _by_key(self, topic: str, key: str, limit: int) -> list[ReceivedMessage]:
        return self._messages.by_key(topic, key, 0, END_OF_TIME, limit)


def id_of(message: ReceivedMessage) -> str:
    """Return the id that all copies of a message share."""
    origin = message.properties.get("UNIQ_KEY") or message.properties.get("ORIGIN_MESSAGE_ID")
    return origin or message.offset_message_id
