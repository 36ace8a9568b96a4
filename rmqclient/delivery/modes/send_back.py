"""Send back: what becomes of a message that cannot be finished where it is.

The message is stored for its next attempt or as a dead letter, and only then acknowledged. If it cannot be stored, it
stays in flight and is tried again in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from rmqclient.backend.group_protocols import RunningSlot, left_to
from rmqclient.calling.current import begun_steps, fields_of
from rmqclient.delivery.acknowledging import Acknowledger
from rmqclient.delivery.calls import Calls, Counters
from rmqclient.delivery.modes.concurrent_queue import ConcurrentQueue
from rmqclient.delivery.runner import Disposition
from rmqclient.failures.application_errors import is_a
from rmqclient.failures.failure import DEATHS, Failure, history
from rmqclient.failures.retry import Outcome, RetryPolicy
from rmqclient.message import ReceivedMessage
from rmqclient.steps.ends import Lost, StepsEnd, failures_in
from rmqclient.steps.steps import Steps
from rmqclient.steps.steps_factory import StepsFactory
from rmqclient.store import clock
from rmqclient.store.errors import QueueError
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_PASSED_ON_AT_MOST = 16
"""So often a process without the handler of a message leaves it to another one that has it."""

_DEATHS_AT_MOST = 2
"""After so many deaths of its process a message is not run in place again."""


class StoresFailures(Protocol):
    """Where failed messages go: :class:`rmqclient.failures.retry.Retries`."""

    @property
    def policy(self) -> RetryPolicy:
        """How often a message is delivered again."""

    @property
    def client_id(self) -> str:
        """The client id of this process, which a failure names."""

    def send_back(
        self, message: ReceivedMessage, failure: Failure, *before: Failure, marks: Mapping[str, str] | None = None
    ) -> Outcome | None:
        """Store a message for its next attempt or as a dead letter; None when it is dropped. Raises as a send.

        ``marks`` are properties that its copy has besides.
        """


class SendBack:
    """Sends back the messages of one handler; safe for threads."""

    def __init__(
        self,
        group: str,
        failures: StoresFailures,
        acknowledger: Acknowledger,
        counters: Counters,
        steps_factory: StepsFactory,
    ) -> None:
        self._group = group
        self._failures = failures
        self._acknowledger = acknowledger
        self._counters = counters
        self._steps_factory = steps_factory

    def failed_in(
        self, calls: Calls, queue: ConcurrentQueue, errors: list[tuple[ReceivedMessage, BaseException]]
    ) -> Disposition:
        """Send back the messages of one call, each with its own error; the call keeps those that cannot be stored."""
        calls.running_slot.fail(sum(failures_in(error) for _, error in errors))
        slot = calls.running_slot
        calls.kept += [message for message, error in errors if not self.failed(queue, message, error, slot)]
        return Disposition.SENT_BACK

    def failed(
        self,
        queue: ConcurrentQueue,
        message: ReceivedMessage,
        error: BaseException,
        running: RunningSlot | None = None,
    ) -> bool:
        """Send back a message whose handler raised. False when it cannot be stored: it is tried again in place.

        ``running`` is the slot of the call; None for a message that was not begun.
        """
        if is_a(error, StepsEnd):
            return self._ended(queue, message, error, running)
        queue.grant.count_failed(1)
        failure = Failure.raised(error, message.delivery_attempt, self._failures.client_id)
        deaths = [Failure.died(each, message) for each in queue.deaths.get(message.queue_offset, ())]
        _log.warning(
            "group %s: attempt %d of message %s (%s, queue %d, offset %d) failed: %s: %s",
            self._group, message.delivery_attempt, message.message_id, message.topic, message.queue_id,
            message.queue_offset, failure.error, failure.text,
            exc_info=error if message.delivery_attempt == 1 else None, extra=fields_of(message, self._group),
        )  # fmt: skip
        if not self._is_stored(queue, message, failure, *deaths, running=running):
            queue.retry_later(message.redelivered())
            return False
        self._counters.add(failed=1)
        return True

    def _ended(
        self, queue: ConcurrentQueue, message: ReceivedMessage, end: StepsEnd, running: RunningSlot | None
    ) -> bool:
        """Give back a message that goes on later, or elsewhere. False when that cannot be stored."""
        if not isinstance(end, Lost):
            try:
                end.store()
            except (QueueError, OSError, MemoryError) as error:
                _log.error(
                    "group %s: message %s cannot be stored for later (%s), so it is kept in place: %s: %s",
                    self._group, message.message_id, end, type(error).__name__, error,
                    extra=fields_of(message, self._group),
                )  # fmt: skip
                queue.retry_later(message.redelivered(message.delivery_attempt))
                return False
        if isinstance(end, Lost) or not self._acknowledger.give_back(queue, [message], running, dead_lettered=False):
            self._acknowledger.refused(queue)
        return True

    def unopened(self, queue: ConcurrentQueue, batch: ReceivedMessage, error: BaseException) -> None:
        """Send back a compressed batch that cannot be opened, as one message whose handler raised ``error``."""
        if self.failed(queue, batch, error):
            queue.settle([batch])

    def without_handler(self, queue: ConcurrentQueue, message: ReceivedMessage, *, is_elsewhere: bool) -> None:
        """Send back a message of the retry topic whose topic has no handler of the group in this process.

        That costs an attempt only if no other process has one (``is_elsewhere``), or if none got the message often.
        """
        failure = Failure.without_handler(self._group, message, self._failures.client_id)
        passed_on = sum(entry.get("text") == failure.text for entry in history(message.properties))
        failure = replace(failure, is_passed_on=is_elsewhere and passed_on < _PASSED_ON_AT_MOST)
        _log.warning(
            "group %s: message %s of topic %s came to a process that has no handler of the group for this topic; %s",
            self._group, message.message_id, message.topic,
            "another process has one and is to try" if failure.is_passed_on else "that counts as a failed attempt",
            extra=fields_of(message, self._group),
        )  # fmt: skip
        self._instead_of_running(queue, message, failure)

    def interrupted(self, queue: ConcurrentQueue, message: ReceivedMessage) -> bool:
        """Send back a message that ended too many processes to be run in place again; tell whether that is so.

        The first death may have another reason, such as a deploy, so it costs no delay. After the second one the
        message would go on ending the process of other messages.
        """
        deaths = queue.deaths.get(message.queue_offset)
        if deaths is None:
            return False
        before = [entry for entry in history(message.properties) if entry.get("error") in DEATHS]
        *earlier, last = (Failure.died(each, message) for each in deaths)
        is_patient = len(before) + deaths[-1].begun < _DEATHS_AT_MOST
        if is_patient and last.attempt <= self._failures.policy.max_retries:
            return False
        self._instead_of_running(queue, message, last, *earlier)
        return True

    def _instead_of_running(
        self, queue: ConcurrentQueue, message: ReceivedMessage, failure: Failure, *earlier: Failure
    ) -> None:
        if self._is_stored(queue, message, failure, *earlier, is_counted=failure.is_passed_on):
            queue.settle([message])
            self._counters.add(failed=int(not failure.is_passed_on))
        else:
            queue.retry_later(message)

    def _is_stored(
        self,
        queue: ConcurrentQueue,
        message: ReceivedMessage,
        failure: Failure,
        *earlier: Failure,
        is_counted: bool = True,
        running: RunningSlot | None = None,
    ) -> bool:
        """Store a message for its retry or as a dead letter, then acknowledge it. False when it cannot be stored.

        A failure that is not counted yet is counted in between: what failed is never less than the dead letters.

        Nothing is stored when the queue has gone to another member that did not leave the message to the call: that one
        has the message, and would handle a copy beside it (RocketMQ: ConsumeMessageConcurrentlyService leaves out the
        results of a dropped process queue).
        """
        if not queue.grant.valid and (running is None or left_to(running, queue.grant) is None):
            self._acknowledger.refused(queue)
            return True
        try:
            outcome = self._store(message, failure, *earlier, was_begun=message.queue_offset in queue.deaths)
        except (QueueError, OSError, MemoryError) as error:
            _log.error(
                "group %s: message %s cannot be stored for its retry, so it is kept in place: %s: %s",
                self._group, message.message_id, type(error).__name__, error, extra=fields_of(message, self._group),
            )  # fmt: skip
            return False
        if outcome is Outcome.DEAD_LETTER:
            _log.error(
                "group %s: message %s of %s is a dead letter after attempt %d: %s: %s",
                self._group, message.message_id, message.topic, failure.attempt, failure.error, failure.text,
                extra=fields_of(message, self._group),
            )  # fmt: skip
        if not is_counted:
            queue.grant.count_failed(1)
        if not self._is_acknowledged(queue, message, outcome, running):
            self._acknowledger.refused(queue)
        return True

    def _store(self, message: ReceivedMessage, failure: Failure, *earlier: Failure, was_begun: bool) -> Outcome | None:
        """Store a message, unless it goes on as a copy that a process has stored which then died. Raises as a send."""
        end = self._steps_factory.moved_on(message, was_begun=was_begun)
        if end is not None:
            end.store()
            return Outcome.RETRY
        steps = begun_steps(message)
        if steps is None:
            return self._failures.send_back(message, failure, *earlier)
        return self._store_with_steps(steps, message, failure, *earlier)

    def _store_with_steps(
        self, steps: Steps, message: ReceivedMessage, failure: Failure, *earlier: Failure
    ) -> Outcome | None:
        """Store a message, and let what is stored of its steps outlive the delay of its retry. Raises as a send."""
        until_ms = clock.wall_ms() + round(self._failures.policy.delay_s(message.delivery_attempt) * 1_000)
        steps.keep(until_ms)
        outcome = self._failures.send_back(message, failure, *earlier, marks=steps.count())
        steps.keep_late_signals(until_ms)
        return outcome

    def _is_acknowledged(
        self, queue: ConcurrentQueue, message: ReceivedMessage, outcome: Outcome | None, running: RunningSlot | None
    ) -> bool:
        if outcome is None:
            return self._acknowledger.acknowledge(queue, message, running)
        is_dead = outcome is Outcome.DEAD_LETTER
        return self._acknowledger.give_back(queue, [message], running, dead_lettered=is_dead)
