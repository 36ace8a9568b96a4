"""Transactions: half messages are committed, rolled back, or checked again and again until they are given up.

A half message waits in a topic without consumers (:mod:`rmqclient.store.waiting.half_messages`). It ends in one of
four ways:

==============  ==================================================  ================================================
way             what is appended, always by one append              what else moves in that append
==============  ==================================================  ================================================
committed       the message, to its own queue; behind it the        nothing
                operation
rolled back     the operation                                       nothing
renewed         the half message again, with one check more, or     the progress goes from it to the next one
                put back because it asks for more time
given up        a copy, to TRANS_CHECK_MAX_TIME_TOPIC               the same
==============  ==================================================  ================================================

**The progress** is where the next round of checks begins: every half message before it was decided, renewed or given
up. It is the ``advance_to`` of the group CID_RMQ_SYS_TRANS in the half topic, where RocketMQ keeps it, too, so it is
carried over like the progress of every group. The group's ``committed_offset``, which is written to
``consumerOffset.json``, follows when everything is on the disk: it never says too much.

**Exactly once.** RocketMQ appends message and operation one after the other; a death in between commits a message
twice. Here both are records of one append, which a death leaves whole or not at all
(:mod:`rmqclient.store.append.appending`). A decision names the state of the log on which it is based: how many
operations there were, and where the progress was. The append compares both under the append mutex and does nothing if
either has moved; then the operations are read on and the decision is made again. So:

T1. A half message has one operation at most, and a committed message if and only if that operation committed it.
T2. Below the progress every half message is decided, renewed or given up; from it on none is renewed or given up.
T3. Of the renewals of one transaction only the newest can be decided. A caller with an older one is led to it.

A power cut, or a broker that was killed, can leave two states that a killed process of this library cannot: a committed
message without its operation, because the log ends between them, and a progress that is too low, because
``consumerOffset.json`` is written every few seconds. The first decision or check after a new runtime file was built
corrects both from the log: :meth:`Transactions._settle`.

**Checks.** A round asks about every undecided half message that is older than ``TransactionConfig.timeout_ms``, or than
the time that the message itself names. The round renews the half message and wakes the producers, one of which finds it
(rmqclient/sending/transaction_producer.py). After ``check_max`` checks, or past the reserved time of messages, the half
message is given up. Any number of processes may run rounds at once.

The source is TransactionalMessageServiceImpl.check, putBackHalfMsgQueue and EndTransactionProcessor.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from rmqclient.store import clock, layout
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import MessageRejected, TransactionDecided
from rmqclient.store.kernel._kernel import GIVEN_UP_TOPIC, HALF_TOPIC, Appender, ReceivedMessage, SendResult
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.group_table import GroupQueueSlot, GroupTable
from rmqclient.store.runtime.members import wake_members_of
from rmqclient.store.runtime.passes import Passes
from rmqclient.store.runtime.shared_state import queue_slot_at, schedule_slot_at
from rmqclient.store.threads.logs import Log
from rmqclient.store.waiting.half_messages import (
    GIVEN_UP_QUEUE,
    HALF_QUEUE,
    OPERATION_QUEUE,
    Identity,
    Operations,
    Queues,
    checked_once_more,
    checks_of,
    decided_by,
    group_of,
    identity,
    immunity_ms,
    is_commit_of,
    put_back,
)
from rmqclient.store.waiting.real_queue import real_queue

_log = Log(__name__)

GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose offsets are the progress of the checks. [TransactionalMessageUtil.buildConsumerGroup]"""

_ADVANCE_TO = layout.GROUP_QUEUE_SLOT.at["advance_to"]
_COMMITTED = layout.GROUP_QUEUE_SLOT.at["committed_offset"]
_MOST_MOVES = layout.ACK_WINDOW // 2
"""A longer move would look like a damaged word (:func:`rmqclient.store.runtime.shared_state.has_sound_offsets`)."""
_MOST_KEPT = 10_000
"""With more operations in memory, the old ones are forgotten."""
_SETTLED_AT = schedule_slot_at(layout.SCHEDULE_SLOTS - 1)
"""A word that is 0 in a new runtime file: no delay level has this slot."""
_LONGEST_ROUND_S = 60.0
"""[MAX_PROCESS_TIME_LIMIT]"""
_HOUR_MS = 3_600_000


_Fate = tuple[str, dict[str, str]]
"""Topic and properties with which a half message is passed on."""


class _State(NamedTuple):
    """The state of the log on which a decision is based."""

    operations: int
    progress: int
    guards: dict[int, int]


class Transactions:
    """The transactions of one open store, for one process; safe for its threads."""

    def __init__(
        self,
        parts: Parts,
        groups: GroupTable,
        oldest: Callable[[MessageQueue], int],
        make_appender: Callable[[], Appender],
        wait_until_flushed: Callable[[int], None],
        now_ms: Callable[[], int] = clock.wall_ms,
    ) -> None:
        self._state = parts.state
        self._topics = parts.topics
        self._groups = groups
        self._queues = Queues(parts.topics, parts.log_files, parts.consume_queues)
        self._oldest = oldest
        self._make_appender = make_appender
        self._wait_until_flushed = wait_until_flushed
        self._config = parts.config
        self._passes = Passes(parts.state)
        self.now_ms = now_ms
        self._appender: Appender | None = None
        self._known: Operations | None = None
        self._lock = threading.RLock()

    # --- deciding ---------------------------------------------------------------------------------

    def decide(self, half: ReceivedMessage, *, commit: bool) -> SendResult:
        """Commit or roll back the transaction of a half message, or of a renewal of it, exactly once.

        The result says where the committed message stands, or the operation of a rollback. A half message that was
        given up can be decided, too. Raises TransactionDecided if it was decided before, MessageRejected if it does not
        name its queue, and what an append raises.
        """
        queue = real_queue(half)
        if queue is None:
            raise MessageRejected(
                f"message {half.queue_offset} of {HALF_TOPIC} names no queue in REAL_TOPIC and REAL_QID"
            )
        with self._lock:
            self._settle()
            self._topics.make_lost(queue)
            while True:
                state = self._read_on()
                current = self._undecided(half, state)
                topic = queue.topic if commit else None
                result = self._appending().decide(current, topic, queue.queue_id, state.guards)
                if result is not None:
                    self._operations().add(state.operations, (current.queue_offset,))
                    return result

    @property
    def end(self) -> int:
        """Queue offset that the next half message will get."""
        return self._queues.known(HALF_QUEUE).stop

    def pending(self, start: int = 0, limit: int | None = None) -> list[ReceivedMessage]:
        """Return up to ``limit`` half messages from ``start`` on that are neither decided nor given up."""
        with self._lock:
            if not self._queues.known(HALF_QUEUE):
                return []
            self._settle()
            state = self._read_on()
            known = self._queues.known(HALF_QUEUE)
            numbers = range(max(start, state.progress, known.start), known.stop)
            halves = self._queues.messages(HALF_QUEUE, numbers)
            return list(islice((half for half in halves if self._operations().of(half) is None), limit))

    def given_up(self) -> list[ReceivedMessage]:
        """Return the half messages that were given up and not decided since, the oldest first."""
        copies = list(self._queues.messages(GIVEN_UP_QUEUE, self._queues.known(GIVEN_UP_QUEUE)))
        halves = self._halves_of({identity(copy) for copy in copies})
        first = min((each[0].commit_log_offset for each in halves.values()), default=0)
        operations = self._queues.messages(OPERATION_QUEUE, self._queues.behind(OPERATION_QUEUE, first))
        decided = {number for operation in operations for number in decided_by(operation)}
        done = {who for who, each in halves.items() if any(half.queue_offset in decided for half in each)}
        return [copy for copy in copies if identity(copy) not in done]

    def half_of(self, copy: ReceivedMessage) -> ReceivedMessage | None:
        """Return the first half message of a transaction that was given up; None if all of them were removed."""
        return next(iter(self._halves_of({identity(copy)}).get(identity(copy), [])), None)

    def _halves_of(self, wanted: set[Identity]) -> dict[Identity, list[ReceivedMessage]]:
        """Return the half messages of some transactions, each with its renewals behind it."""
        found: dict[Identity, list[ReceivedMessage]] = {}
        for half in self._queues.messages(HALF_QUEUE, self._queues.known(HALF_QUEUE) if wanted else range(0)):
            if identity(half) in wanted:
                found.setdefault(identity(half), []).append(half)
        return found

    def _undecided(self, half: ReceivedMessage, state: _State) -> ReceivedMessage:
        """Return the newest renewal of a half message. Raises TransactionDecided."""
        if half.queue_offset >= state.progress:
            if (number := self._operations().of(half)) is not None:
                raise self._decided(half, number)
            return half
        wanted = identity(half)
        later = range(half.queue_offset, self._queues.known(HALF_QUEUE).stop)
        renewals = [found for found in self._queues.messages(HALF_QUEUE, later) if identity(found) == wanted]
        operation = self._operation_behind(half, {each.queue_offset for each in (half, *renewals)}, state.operations)
        if operation is not None:
            raise self._decided(half, operation.queue_offset)
        return renewals[-1] if renewals else half

    def _operation_behind(self, half: ReceivedMessage, numbers: set[int], end: int) -> ReceivedMessage | None:
        """Return the operation of one of these half messages, of which ``half`` is the oldest."""
        operations = self._queues.messages(
            OPERATION_QUEUE, self._queues.behind(OPERATION_QUEUE, half.commit_log_offset, end)
        )
        return next((each for each in operations if not numbers.isdisjoint(decided_by(each))), None)

    def _decided(self, half: ReceivedMessage, number: int) -> TransactionDecided:
        operation = self._queues.message(OPERATION_QUEUE, number)
        queue = real_queue(half)
        committed = operation is not None and queue is not None and self._queues.was_committed(queue, operation, half)
        return TransactionDecided(
            f"the transaction of message {half.message_id} was {'committed' if committed else 'rolled back'} already",
            committed=committed,
        )

    # --- checking ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Run one round of checks; the housekeeper's task. Raises what an append raises."""
        began_ms, deadline = self.now_ms(), time.monotonic() + _LONGEST_ROUND_S
        if not self._queues.known(HALF_QUEUE):
            return
        with self._lock:
            self._settle()
            self._step_over_removed()
            end = self._queues.known(HALF_QUEUE).stop
        renewed: list[int] = []
        try:
            while time.monotonic() < deadline and self._pass_next(began_ms, end, renewed):
                pass
        finally:
            if renewed:
                self._wake_producers()
        self.finish()

    def _pass_next(self, began_ms: int, end: int, renewed: list[int]) -> bool:
        """Deal with the half message at the progress. False if the round is over."""
        with self._lock:  # not for the whole round: senders of this process decide meanwhile
            state = self._read_on()
            if state.progress >= end:
                return False
            half = self._queues.message(HALF_QUEUE, state.progress)
            if half is None:
                _log.error("half message %d cannot be read: its transaction stays undecided", state.progress)
                self._passes.step_over()
            if half is None or self._operations().of(half) is not None:
                self._move_to(state.progress + 1)
                return True
            fate = self._fate(half, began_ms)
            if fate is None:
                return False
            try:
                self._pass(half, fate, state, renewed)
            except MessageRejected as error:  # every other transaction is checked after it
                self._give_up_as_it_is(half, error, state)
            return True

    def _pass(self, half: ReceivedMessage, fate: _Fate, state: _State, renewed: list[int]) -> None:
        """Renew a half message or give it up, unless the state has moved on."""
        if self._appending().pass_half(half, *fate, self._progress_at(), state.guards) is not None:
            reach(CrashPoint.HALF_PASSED)
            renewed.append(half.queue_offset)
            if fate[0] == GIVEN_UP_TOPIC:
                _log_given_up(half)
            self._move_to(half.queue_offset + 1)

    def _give_up_as_it_is(self, half: ReceivedMessage, error: MessageRejected, state: _State) -> None:
        """Give up a half message that has no room for one check more, or step over one that fits nowhere."""
        _log.error("message %s cannot be checked: %s", half.message_id, error)
        try:
            self._pass(half, (GIVEN_UP_TOPIC, half.properties), state, [])
        except MessageRejected:
            _log.error("half message %d is stepped over: its transaction stays undecided", half.queue_offset)
            self._passes.step_over()
            self._move_to(half.queue_offset + 1)

    def finish(self) -> None:
        """Flush what the progress has passed, then let the group's committed offsets follow it.

        A power cut must not take away the renewal of a half message that counts as passed. Raises StoreFull, StoreBusy,
        StorePoisoned, NotFlushed.
        """
        if not self._queues.known(HALF_QUEUE):
            return
        with self._lock:
            self._topics.make_lost(OPERATION_QUEUE)
            halves, operations = self._slot(HALF_QUEUE), self._slot(OPERATION_QUEUE)
            progress = halves.load("advance_to")
            counting = self._operations().forget_below(progress)
            if halves.committed_offset < progress or operations.committed_offset < counting:
                self._wait_until_flushed(self._state.published_to)
                for slot, offset in ((halves, progress), (operations, counting)):
                    with slot.locked(self._config.lock_timeout_ms):
                        self._state.raise_word(slot.at + _ADVANCE_TO, offset)
                        self._state.raise_word(slot.at + _COMMITTED, offset)

    def _move_to(self, half_offset: int) -> None:
        """Raise the progress over half messages that are dealt with, staying close to what is on the disk."""
        slot = self._slot(HALF_QUEUE)
        while (progress := slot.load("advance_to")) < half_offset or progress - slot.committed_offset >= _MOST_MOVES:
            if progress - slot.committed_offset >= _MOST_MOVES:
                self.finish()
            else:
                self._state.raise_word(slot.at + _ADVANCE_TO, min(half_offset, slot.committed_offset + _MOST_MOVES))

    def _fate(self, half: ReceivedMessage, began_ms: int) -> _Fate | None:
        """Return the topic and the properties with which a half message is passed on; None to end the round."""
        age = self.now_ms() - half.born_timestamp
        if checks_of(half) >= self._config.transactions.check_max:
            return GIVEN_UP_TOPIC, half.properties
        if age > self._config.retention.file_reserved_hours * _HOUR_MS:
            return GIVEN_UP_TOPIC, checked_once_more(half)
        if half.store_timestamp >= began_ms:
            return None
        own = immunity_ms(half)
        if own is not None and age < own:
            return HALF_TOPIC, put_back(half)
        if own is None and 0 <= age < self._config.transactions.timeout_ms:
            return None
        return HALF_TOPIC, checked_once_more(half)

    def _step_over_removed(self) -> None:
        state = self._read_on()
        low = self._oldest(HALF_QUEUE)
        if low <= state.progress:
            return
        lost = [number for number in range(state.progress, low) if not self._operations().decides(number)]
        if lost:
            _log.error(
                "retention removed %d undecided half messages, %d to %d: they are neither committed nor rolled back",
                len(lost),
                lost[0],
                lost[-1],
            )
            self._passes.step_over(len(lost))
        self._move_to(low)

    def _wake_producers(self) -> None:
        """Make the members of the half topic look at the half messages that were renewed."""
        wake_members_of(self._state, HALF_TOPIC)

    # --- what a power cut or a broker left --------------------------------------------------------

    def _settle(self) -> None:
        """Correct the progress and the operations from the log, once for each runtime file."""
        if self._state.words.load(_SETTLED_AT):
            return
        state = self._read_on()
        known = self._queues.known(HALF_QUEUE)
        halves = list(self._queues.messages(HALF_QUEUE, range(max(state.progress, known.start), known.stop)))
        self._move_to(self._passed(halves, state.progress))
        while found := self._committed_without_operation(halves, self._read_on()):
            for half in found:
                self._append_operation(half)
        reach(CrashPoint.TRANSACTIONS_SETTLED)
        self._state.words.store(_SETTLED_AT, 1)

    def _passed(self, halves: list[ReceivedMessage], progress: int) -> int:
        """Return the offset behind the last half message that was renewed or given up."""
        if not halves:
            return progress
        newest: dict[Identity, int] = {identity(half): half.queue_offset for half in halves}
        copies = self._queues.behind(GIVEN_UP_QUEUE, halves[0].commit_log_offset)
        given_up = {identity(copy) for copy in self._queues.messages(GIVEN_UP_QUEUE, copies)}
        passed = [
            half.queue_offset
            for half in halves
            if newest[identity(half)] > half.queue_offset or identity(half) in given_up
        ]
        return max(passed, default=progress - 1) + 1

    def _committed_without_operation(self, halves: list[ReceivedMessage], state: _State) -> list[ReceivedMessage]:
        by_queue: dict[MessageQueue, list[ReceivedMessage]] = {}
        for half in halves:
            queue = real_queue(half)
            if half.queue_offset >= state.progress and queue is not None and self._operations().of(half) is None:
                by_queue.setdefault(queue, []).append(half)
        found = []
        for queue, undecided in by_queue.items():
            numbers = self._queues.behind(queue, undecided[0].commit_log_offset)
            for message in self._queues.tagged(queue, numbers, {half.tags_code for half in undecided}):
                found += [half for half in undecided if is_commit_of(message, half)]
        return found

    def _append_operation(self, half: ReceivedMessage) -> None:
        reach(CrashPoint.OPERATION_FOUND)
        state = self._read_on()
        if self._operations().of(half) is None:
            _log.warning("message %s was committed without its operation, which is written now", half.message_id)
            self._appending().decide(half, None, 0, state.guards)

    # --- the state of the log ---------------------------------------------------------------------

    def _read_on(self) -> _State:
        """Read the operations on; return the state of the log."""
        for queue in (HALF_QUEUE, OPERATION_QUEUE):
            self._topics.make_lost(queue)
        operations_at = queue_slot_at(self._topics.slot(OPERATION_QUEUE)) + layout.QUEUE_SLOT.at["max_offset"]
        progress_at = self._progress_at()
        progress, operations = self._state.words.load(progress_at), self._state.words.load(operations_at)
        self._operations().read_to(operations)
        if len(self._operations()) > _MOST_KEPT:
            self._operations().forget_below(progress)
        return _State(operations, progress, {operations_at: operations, progress_at: progress})

    def _operations(self) -> Operations:
        if self._known is None:
            slot = self._slot(OPERATION_QUEUE)
            self._known = Operations(self._queues, max(slot.load("advance_to"), self._oldest(OPERATION_QUEUE)))
        return self._known

    def _slot(self, queue: MessageQueue) -> GroupQueueSlot:
        number = self._topics.slot(queue)
        return self._groups.find(GROUP, number) or self._groups.find_or_add(
            GROUP, number, self._topics.min_offset(queue)
        )

    def _progress_at(self) -> int:
        return self._slot(HALF_QUEUE).at + _ADVANCE_TO

    def _appending(self) -> Appender:
        if self._appender is None:
            self._appender = self._make_appender()
        return self._appender


def _log_given_up(half: ReceivedMessage) -> None:
    _log.error(
        "message %s of producer group %r for topic %r is undecided after %d checks: it is in %s now; "
        "`rmq tx ls` shows it, `rmq tx commit` and `rmq tx rollback` decide it",
        half.message_id,
        group_of(half),
        half.properties.get("REAL_TOPIC"),
        checks_of(half),
        GIVEN_UP_TOPIC,
    )
