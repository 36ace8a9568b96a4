"""Updates: bulk reads of the keys and values of a queue's messages, for tables.

A batch that is one record gives one row for each of its messages. :class:`MessageUpdates` builds updates from messages,
for any backend; a store of this host has a faster reader of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from rmqclient.backend.pull_result import PullResult, PullStatus
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageQueue
from rmqclient.store.errors import BodyUnreadable
from rmqclient.store.log.inner_batch import inner_messages, is_batch
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class Unreadable(NamedTuple):
    """Replaces a value that cannot be read."""

    reason: str


class Updates(NamedTuple):
    """The keys and values of consecutive messages of a queue, as parallel lists."""

    keys: list[str]
    """The first key of each message; empty for a message without keys."""

    values: list[bytes | Unreadable]
    """The bodies."""

    places: list[int]
    """Position of each message in the order of all queues of the topic; the largest is the newest."""

    next_offset: int
    """Queue offset of the next message."""

    lost: int = 0
    """Number of messages that were removed before the read, or are damaged."""


class UpdateReader(Protocol):
    """Reads the queues of a backend. For one thread."""

    @property
    def reads_in_order(self) -> bool:
        """Whether messages of all queues become readable in the order of their places."""

    def read(self, queue: MessageQueue, start: int, stop: int) -> Iterator[Updates]:
        """Yield the updates of the messages from queue offset ``start`` up to ``stop`` or a little further, in order.

        Messages that were removed or are damaged are logged and skipped. Raises StoreClosed, and as a read of the
        backend.
        """

    def refresh(self) -> None:
        """Release files that the backend has removed. Call it before each look at the queues."""


class MessageUpdates:
    """Builds updates from the messages that ``read`` returns; ``place_of`` gives their order."""

    def __init__(
        self,
        read: Callable[[MessageQueue, int], PullResult],
        place_of: Callable[[ReceivedMessage], int],
        *,
        reads_in_order: bool,
    ) -> None:
        self.reads_in_order = reads_in_order
        self._read = read
        self._place_of = place_of

    def read(self, queue: MessageQueue, start: int, stop: int) -> Iterator[Updates]:
        """As :meth:`UpdateReader.read`."""
        while start < stop:
            result = self._read(queue, start)
            if result.status is PullStatus.NO_NEW_MESSAGE:
                return
            lost = result.next_offset - start if result.status is PullStatus.OFFSET_ILLEGAL else 0
            if lost > 0:
                end = result.next_offset - 1
                _log.warning("messages %d to %d of %s were removed before the table had them", start, end, queue)
            yield self._updates(result)._replace(lost=max(0, lost))
            start = result.next_offset

    def refresh(self) -> None:
        """Do nothing: messages are copies."""

    def _updates(self, result: PullResult) -> Updates:
        updates = Updates([], [], [], result.next_offset)
        for message in result.messages:
            for key, value in said_by(message):
                updates.keys.append(key)
                updates.values.append(value)
                updates.places.append(self._place_of(message))
        return updates


def said_by(record: ReceivedMessage) -> list[tuple[str, bytes | Unreadable]]:
    """Return the key and the value of a record's message, or of each message if the record is a batch.

    A batch that cannot be opened is logged and skipped, because its keys cannot be read.
    """
    if is_batch(record):
        try:
            return [(next(iter(message.keys), ""), message.body) for message in inner_messages(record)]
        except BodyUnreadable as error:
            place = record.commit_log_offset
            _log.error("the batch at %d cannot be opened; the table stepped over it: %s", place, error)
            return []
    key = next(iter(record.keys), "")
    try:
        return [(key, record.body)]
    except BodyUnreadable as error:
        return [(key, Unreadable(str(error)))]
