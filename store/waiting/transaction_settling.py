"""Transaction settling: what a power cut or a broker has left is corrected from the log, once for each runtime file."""

from __future__ import annotations

from rmqclient.store import layout
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.kernel._kernel import ReceivedMessage
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.shared_state import SharedState, schedule_slot_at
from rmqclient.store.threads.logs import Log
from rmqclient.store.waiting.half_messages import GIVEN_UP_QUEUE, HALF_QUEUE, Identity, identity, is_commit_of
from rmqclient.store.waiting.real_queue import real_queue
from rmqclient.store.waiting.transaction_log import State, TransactionLog

_log = Log(__name__)

_SETTLED_AT = schedule_slot_at(layout.SCHEDULE_SLOTS - 1)
"""A word that is 0 in a new runtime file: no delay level has this slot."""


class Settling:
    """Corrects the progress and adds missing operations; the lock of the log must be held."""

    def __init__(self, log: TransactionLog, state: SharedState) -> None:
        self._log = log
        self._state = state

    def settle(self) -> None:
        """Correct the progress and the operations from the log, once for each runtime file."""
        if self._state.words.load(_SETTLED_AT):
            return
        state = self._log.read_on()
        known = self._log.queues.known(HALF_QUEUE)
        halves = list(self._log.queues.messages(HALF_QUEUE, range(max(state.progress, known.start), known.stop)))
        self._log.move_to(self._passed(halves, state.progress))
        while found := self._committed_without_operation(halves, self._log.read_on()):
            for half in found:
                self._append_operation(half)
        reach(CrashPoint.TRANSACTIONS_SETTLED)
        self._state.words.store(_SETTLED_AT, 1)

    def _passed(self, halves: list[ReceivedMessage], progress: int) -> int:
        """Return the offset behind the last half message that was renewed or given up."""
        if not halves:
            return progress
        newest: dict[Identity, int] = {identity(half): half.queue_offset for half in halves}
        copies = self._log.queues.behind(GIVEN_UP_QUEUE, halves[0].commit_log_offset)
        given_up = {identity(copy) for copy in self._log.queues.messages(GIVEN_UP_QUEUE, copies)}
        passed = [
            half.queue_offset
            for half in halves
            if newest[identity(half)] > half.queue_offset or identity(half) in given_up
        ]
        return max(passed, default=progress - 1) + 1

    def _committed_without_operation(self, halves: list[ReceivedMessage], state: State) -> list[ReceivedMessage]:
        by_queue: dict[MessageQueue, list[ReceivedMessage]] = {}
        for half in halves:
            queue = real_queue(half)
            if half.queue_offset >= state.progress and queue is not None and self._log.operations().of(half) is None:
                by_queue.setdefault(queue, []).append(half)
        found = []
        for queue, undecided in by_queue.items():
            numbers = self._log.queues.behind(queue, undecided[0].commit_log_offset)
            for message in self._log.queues.tagged(queue, numbers, {half.tags_code for half in undecided}):
                found += [half for half in undecided if is_commit_of(message, half)]
        return found

    def _append_operation(self, half: ReceivedMessage) -> None:
        reach(CrashPoint.OPERATION_FOUND)
        state = self._log.read_on()
        if self._log.operations().of(half) is None:
            _log.warning("message %s was committed without its operation, which is written now", half.message_id)
            self._log.appending().decide(half, None, 0, state.guards)
