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
corrects both from the log: :mod:`rmqclient.store.waiting.transaction_settling`.

**Checks.** A round asks about every undecided half message that is older than ``TransactionConfig.timeout_ms``, or than
the time that the message itself names. The round renews the half message and wakes the producers, one of which finds it
(rmqclient/sending/transaction_producer.py). After ``check_max`` checks, or past the reserved time of messages, the half
message is given up. Any number of processes may run rounds at once.

The source is TransactionalMessageServiceImpl.check, putBackHalfMsgQueue and EndTransactionProcessor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

from rmqclient.store import clock
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import MessageRejected
from rmqclient.store.kernel._kernel import GIVEN_UP_TOPIC, HALF_TOPIC, Appender, ReceivedMessage, SendResult
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.group_table import GroupTable
from rmqclient.store.runtime.members import wake_members_of
from rmqclient.store.runtime.passes import Passes
from rmqclient.store.threads.logs import Log
from rmqclient.store.waiting.half_messages import (
    GIVEN_UP_QUEUE,
    HALF_QUEUE,
    OPERATION_QUEUE,
    Identity,
    checked_once_more,
    checks_of,
    decided_by,
    group_of,
    identity,
    immunity_ms,
    put_back,
)
from rmqclient.store.waiting.real_queue import real_queue
from rmqclient.store.waiting.transaction_log import State, TransactionLog
from rmqclient.store.waiting.transaction_settling import Settling

_log = Log(__name__)

_LONGEST_ROUND_S = 60.0
"""[MAX_PROCESS_TIME_LIMIT]"""
_HOUR_MS = 3_600_000


_Fate = tuple[str, dict[str, str]]
"""Topic and properties with which a half message is passed on."""


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
        self._log = log = TransactionLog(parts, groups, oldest, make_appender, wait_until_flushed)
        self._queues = log.queues
        self._lock = log.lock
        self._settle = Settling(log, parts.state).settle
        self.finish = log.finish
        self._oldest = oldest
        self._config = parts.config
        self._passes = Passes(parts.state)
        self.now_ms = now_ms

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
                state = self._log.read_on()
                current = self._log.newest(half, state)
                topic = queue.topic if commit else None
                result = self._log.appending().decide(current, topic, queue.queue_id, state.guards)
                if result is not None:
                    self._log.operations().add(state.operations, (current.queue_offset,))
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
            state = self._log.read_on()
            known = self._queues.known(HALF_QUEUE)
            numbers = range(max(start, state.progress, known.start), known.stop)
            halves = self._queues.messages(HALF_QUEUE, numbers)
            return list(islice((half for half in halves if self._log.operations().of(half) is None), limit))

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
                wake_members_of(self._state, HALF_TOPIC)  # the producers look at what was renewed
        self.finish()

    def _pass_next(self, began_ms: int, end: int, renewed: list[int]) -> bool:
        """Deal with the half message at the progress. False if the round is over."""
        with self._lock:  # not for the whole round: senders of this process decide meanwhile
            state = self._log.read_on()
            if state.progress >= end:
                return False
            half = self._queues.message(HALF_QUEUE, state.progress)
            if half is None:
                _log.error("half message %d cannot be read: its transaction stays undecided", state.progress)
                self._passes.step_over()
            if half is None or self._log.operations().of(half) is not None:
                self._log.move_to(state.progress + 1)
                return True
            fate = self._fate(half, began_ms)
            if fate is None:
                return False
            try:
                self._pass(half, fate, state, renewed)
            except MessageRejected as error:  # every other transaction is checked after it
                self._give_up_as_it_is(half, error, state)
            return True

    def _pass(self, half: ReceivedMessage, fate: _Fate, state: State, renewed: list[int]) -> None:
        """Renew a half message or give it up, unless the state has moved on."""
        if self._log.appending().pass_half(half, *fate, self._log.progress_at(), state.guards) is not None:
            reach(CrashPoint.HALF_PASSED)
            renewed.append(half.queue_offset)
            if fate[0] == GIVEN_UP_TOPIC:
                _log_given_up(half)
            self._log.move_to(half.queue_offset + 1)

    def _give_up_as_it_is(self, half: ReceivedMessage, error: MessageRejected, state: State) -> None:
        """Give up a half message that has no room for one check more, or step over one that fits nowhere."""
        _log.error("message %s cannot be checked: %s", half.message_id, error)
        try:
            self._pass(half, (GIVEN_UP_TOPIC, half.properties), state, [])
        except MessageRejected:
            _log.error("half message %d is stepped over: its transaction stays undecided", half.queue_offset)
            self._passes.step_over()
            self._log.move_to(half.queue_offset + 1)

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
        state = self._log.read_on()
        low = self._oldest(HALF_QUEUE)
        if low <= state.progress:
            return
        lost = [number for number in range(state.progress, low) if not self._log.operations().decides(number)]
        if lost:
            _log.error(
                "retention removed %d undecided half messages, %d to %d: they are neither committed nor rolled back",
                len(lost),
                lost[0],
                lost[-1],
            )
            self._passes.step_over(len(lost))
        self._log.move_to(low)


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
