"""Transaction log: what the log says of half messages and their operations, and how far the checks have come.

:mod:`rmqclient.store.waiting.transaction` says what the progress is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rmqclient.store import layout
from rmqclient.store.errors import TransactionDecided
from rmqclient.store.kernel._kernel import Appender, ReceivedMessage
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.native_threads import threading
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.group_table import GroupQueueSlot, GroupTable
from rmqclient.store.runtime.shared_state import queue_slot_at
from rmqclient.store.waiting.half_messages import (
    HALF_QUEUE,
    OPERATION_QUEUE,
    Operations,
    Queues,
    decided_by,
    identity,
)
from rmqclient.store.waiting.real_queue import real_queue

GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose offsets are the progress of the checks. [TransactionalMessageUtil.buildConsumerGroup]"""

_ADVANCE_TO = layout.GROUP_QUEUE_SLOT.at["advance_to"]
_COMMITTED = layout.GROUP_QUEUE_SLOT.at["committed_offset"]
_MOST_MOVES = layout.ACK_WINDOW // 2
"""A longer move would look like a damaged word (:func:`rmqclient.store.runtime.shared_state.has_sound_offsets`)."""
_MOST_KEPT = 10_000
"""With more operations in memory, the old ones are forgotten."""


class State(NamedTuple):
    """The state of the log on which a decision is based."""

    operations: int
    progress: int
    guards: dict[int, int]


class TransactionLog:
    """The half messages and the operations of one open store, for one process.

    Hold :attr:`lock` from reading the state of the log to the append that goes by it.
    """

    def __init__(
        self,
        parts: Parts,
        groups: GroupTable,
        oldest: Callable[[MessageQueue], int],
        make_appender: Callable[[], Appender],
        wait_until_flushed: Callable[[int], None],
    ) -> None:
        self.lock = threading.RLock()
        self.queues = Queues(parts.topics, parts.log_files, parts.consume_queues)
        self._state = parts.state
        self._topics = parts.topics
        self._groups = groups
        self._oldest = oldest
        self._make_appender = make_appender
        self._wait_until_flushed = wait_until_flushed
        self._config = parts.config
        self._appender: Appender | None = None
        self._known: Operations | None = None

    def read_on(self) -> State:
        """Read the operations on; return the state of the log."""
        for queue in (HALF_QUEUE, OPERATION_QUEUE):
            self._topics.make_lost(queue)
        operations_at = queue_slot_at(self._topics.slot(OPERATION_QUEUE)) + layout.QUEUE_SLOT.at["max_offset"]
        progress_at = self.progress_at()
        progress, operations = self._state.words.load(progress_at), self._state.words.load(operations_at)
        self.operations().read_to(operations)
        if len(self.operations()) > _MOST_KEPT:
            self.operations().forget_below(progress)
        return State(operations, progress, {operations_at: operations, progress_at: progress})

    def operations(self) -> Operations:
        """Return the operations, as far as they were read."""
        if self._known is None:
            slot = self._slot(OPERATION_QUEUE)
            self._known = Operations(self.queues, max(slot.load("advance_to"), self._oldest(OPERATION_QUEUE)))
        return self._known

    def _slot(self, queue: MessageQueue) -> GroupQueueSlot:
        number = self._topics.slot(queue)
        return self._groups.find(GROUP, number) or self._groups.find_or_add(
            GROUP, number, self._topics.min_offset(queue)
        )

    def progress_at(self) -> int:
        """Return the position of the word of the progress in the runtime file."""
        return self._slot(HALF_QUEUE).at + _ADVANCE_TO

    def appending(self) -> Appender:
        """Return the appender of all decisions and checks; the first call makes it."""
        if self._appender is None:
            self._appender = self._make_appender()
        return self._appender

    def newest(self, half: ReceivedMessage, state: State) -> ReceivedMessage:
        """Return the newest renewal of a half message. Raises TransactionDecided."""
        if half.queue_offset >= state.progress:
            if (number := self.operations().of(half)) is not None:
                raise self._decided(half, number)
            return half
        wanted = identity(half)
        later = range(half.queue_offset, self.queues.known(HALF_QUEUE).stop)
        renewals = [found for found in self.queues.messages(HALF_QUEUE, later) if identity(found) == wanted]
        operation = self._operation_behind(half, {each.queue_offset for each in (half, *renewals)}, state.operations)
        if operation is not None:
            raise self._decided(half, operation.queue_offset)
        return renewals[-1] if renewals else half

    def _operation_behind(self, half: ReceivedMessage, numbers: set[int], end: int) -> ReceivedMessage | None:
        """Return the operation of one of these half messages, of which ``half`` is the oldest."""
        operations = self.queues.messages(
            OPERATION_QUEUE, self.queues.behind(OPERATION_QUEUE, half.commit_log_offset, end)
        )
        return next((each for each in operations if not numbers.isdisjoint(decided_by(each))), None)

    def _decided(self, half: ReceivedMessage, number: int) -> TransactionDecided:
        operation = self.queues.message(OPERATION_QUEUE, number)
        queue = real_queue(half)
        committed = operation is not None and queue is not None and self.queues.was_committed(queue, operation, half)
        return TransactionDecided(
            f"the transaction of message {half.message_id} was {'committed' if committed else 'rolled back'} already",
            committed=committed,
        )

    def finish(self) -> None:
        """Flush what the progress has passed, then let the group's committed offsets follow it.

        A power cut must not take away the renewal of a half message that counts as passed. Raises StoreFull, StoreBusy,
        StorePoisoned, NotFlushed.
        """
        if not self.queues.known(HALF_QUEUE):
            return
        with self.lock:
            self._topics.make_lost(OPERATION_QUEUE)
            halves, operations = self._slot(HALF_QUEUE), self._slot(OPERATION_QUEUE)
            progress = halves.load("advance_to")
            counting = self.operations().forget_below(progress)
            if halves.committed_offset < progress or operations.committed_offset < counting:
                self._wait_until_flushed(self._state.published_to)
                for slot, offset in ((halves, progress), (operations, counting)):
                    with slot.locked(self._config.lock_timeout_ms):
                        self._state.raise_word(slot.at + _ADVANCE_TO, offset)
                        self._state.raise_word(slot.at + _COMMITTED, offset)

    def move_to(self, half_offset: int) -> None:
        """Raise the progress over half messages that are dealt with, staying close to what is on the disk."""
        slot = self._slot(HALF_QUEUE)
        while (progress := slot.load("advance_to")) < half_offset or progress - slot.committed_offset >= _MOST_MOVES:
            if progress - slot.committed_offset >= _MOST_MOVES:
                self.finish()
            else:
                self._state.raise_word(slot.at + _ADVANCE_TO, min(half_offset, slot.committed_offset + _MOST_MOVES))
