"""Updates: the keys and values of the messages of a queue, many at a time, as a table takes them in.

A batch that is one record gives one row for each of its messages. :class:`MessageUpdates` makes updates of messages,
for a backend that reads messages; a store of this host has a reader of its own.
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
    """Stands for a value that cannot be read."""

    reason: str


class Updates(NamedTuple):
    """The keys and values of some consecutive messages of a queue: lists with an element for each."""

    keys: list[str]
    """The first of the ``keys`` of each message; empty for a message without keys."""

    values: list[bytes | Unreadable]
    """The bodies."""

    places: list[int]
    """Where each message stands in the order of all queues of the topic: the greatest is the last one."""

    next_offset: int
    """Queue offset of the next message."""

    lost: int = 0
    """Messages among them that were removed before they were read, or are damaged."""


class UpdateReader(Protocol):
    """Reads the queues of a backend. For one thread."""

    @property
    def reads_in_order(self) -> bool:
        """Whether no message can be read before another one, of any queue, whose place is lower."""

    def read(self, queue: MessageQueue, start: int, stop: int) -> Iterator[Updates]:
        """Yield the updates of the messages from queue offset ``start`` up to ``stop`` or a little further, in order.

        Messages that were removed or are damaged are logged and stepped over. Raises StoreClosed, and what a read of
        the backend raises.
        """

    def refresh(self) -> None:
        """Let go of what the backend has removed. Called before each look at the queues."""


class MessageUpdates:
    """Makes updates of the messages that ``read`` returns, from an offset on; ``place_of`` gives their order."""

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
        """Yield the updates of some messages; see :meth:`UpdateReader.read`."""
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
        """Do nothing: a message that was read is an object of its own."""

    def _updates(self, result: PullResult) -> Updates:
        updates = Updates([], [], [], result.next_offset)
        for message in result.messages:
            for key, value in said_by(message):
                updates.keys.append(key)
                updates.values.append(value)
                updates.places.append(self._place_of(message))
        return updates


def said_by(record: ReceivedMessage) -> list[tuple[str, bytes | Unreadable]]:
    """Return the key and the value of the message of a record, or of each message if the record is a batch.

    A batch that cannot be opened is logged and gives nothing, because its keys cannot be read.
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
