"""Messages: those of a topic one after the other, for a loop and for an asynchronous loop.

::

    with PullConsumer("./store", group="reports") as consumer:
        for message in consumer.messages("orders", start="committed", wait=0):
            ...

The messages of a queue come in its order; those that are there of several queues come by the time at which they were
stored. Queues that the topic gets meanwhile are read, too.
"""

from __future__ import annotations

import datetime
import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal, TypeAlias

from rmqclient.backend.backend import Backend
from rmqclient.filters.tag import TagFilter
from rmqclient.message import ReceivedMessage
from rmqclient.store import LONGEST_SLEEP_S, MessageQueue, clock
from rmqclient.tracing.incoming import Read

From: TypeAlias = Literal["earliest", "latest", "committed"] | datetime.datetime
"""Where reading begins in each queue."""

_READ_AT_ONCE = 256
"""Messages of one queue."""


class Messages:
    """The messages of a topic; :meth:`rmqclient.PullConsumer.messages` makes it. For one loop at a time.

    ``read`` reads from a queue of the backend. ``start_of(queue)`` returns the first queue offset to read;
    ``commit(queue, offset)`` keeps where the group goes on.
    """

    def __init__(
        self,
        backend: Backend,
        read: Read,
        topic: str,
        wanted: TagFilter,
        start_of: Callable[[MessageQueue], int],
        commit: Callable[[MessageQueue, int], None],
        wait_s: float | None,
    ) -> None:
        self._backend = backend
        self._read_queue = read
        self._topic = topic
        self._wanted = wanted
        self._commit = commit
        self._wait_s = wait_s
        self._bell = backend.queues.bell()
        self._queues = backend.topics.read_queues(topic)
        self._next = {queue: start_of(queue) for queue in self._queues}
        self._finished: dict[MessageQueue, int] = {}
        self._read: deque[tuple[MessageQueue, ReceivedMessage]] = deque()
        self._ahead: dict[MessageQueue, deque[int]] = {}
        self._yielded: MessageQueue | None = None

    def commit(self) -> None:
        """Let the group go on behind the messages that were yielded, the last one included.

        Raises as :meth:`rmqclient.PullConsumer.commit`.
        """
        self._finish_yielded()
        for queue, offset in self._finished.items():
            self._commit(queue, offset)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Yield messages; end when none came for as long as ``wait`` says."""
        while self._fill():
            yield self._take()

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Yield messages, and never block the loop."""
        import asyncio  # noqa: PLC0415 - only programs with coroutines need it

        while bool(self._read) or await asyncio.to_thread(self._fill):
            yield self._take()

    def _take(self) -> ReceivedMessage:
        self._finish_yielded()
        self._yielded, message = self._read.popleft()
        return message

    def _finish_yielded(self) -> None:
        """Count the message that was yielded last as finished: whoever has it asks for more, or commits."""
        if self._yielded is not None:
            queue, self._yielded = self._yielded, None
            self._finished[queue] = self._ahead[queue].popleft()

    def _fill(self) -> bool:
        """Read messages if none are read, and wait for them. False when the wait is over."""
        deadline = None if self._wait_s is None else clock.elapsed() + self._wait_s
        while not self._read:
            heard = self._bell.arm(*self._queues)
            self._look()
            if self._read:
                break
            left_s = LONGEST_SLEEP_S if deadline is None else deadline - clock.elapsed()
            if left_s <= 0:
                return False
            self._bell.wait(heard, min(clock.real_s(left_s), LONGEST_SLEEP_S))
            self._queues = self._backend.topics.read_queues(self._topic)
            for queue in self._queues:
                self._next.setdefault(queue, 0)  # a queue that is made meanwhile is read from its first message on
        return True

    def _look(self) -> None:
        found: list[list[tuple[MessageQueue, ReceivedMessage]]] = []
        for queue in self._queues:
            offset = self._next[queue]
            result = self._read_queue(queue, offset, _READ_AT_ONCE, self._wanted)
            self._next[queue] = result.next_offset
            if result.messages:
                found.append([(queue, message) for message in result.messages])
                # Behind a message the group goes on at the next one: messages of one batch share their queue offset.
                behind = [message.queue_offset for message in result.messages[1:]]
                self._ahead.setdefault(queue, deque()).extend([*behind, result.next_offset])
            elif result.next_offset > offset and not self._ahead.get(queue):
                self._finished[queue] = result.next_offset  # nothing there is wanted
        self._read.extend(heapq.merge(*found, key=lambda each: each[1].store_timestamp))
