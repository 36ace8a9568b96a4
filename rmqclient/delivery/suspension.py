"""Suspension: what happens when a message fails and the messages behind it must wait for it.

The message is delivered again in place, after a pause of one second [suspendCurrentQueueTimeMillis, clamped to 10 ms to
30 s, as in ConsumeMessageOrderlyService], without a limit on the attempts [maxReconsumeTimes, 2^31 - 1]. If the handler
has a retry policy of its own and the attempts reach its limit, the message becomes a dead letter, and the messages
behind it go on.

A handler asks for another pause, which may be longer, with::

    raise Suspend(5)
"""

from __future__ import annotations

import logging
from dataclasses import replace

from rmqclient.calling.current import begun_steps, fields_of
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.calls import Calls, Counters
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.delivery.runner import Disposition, Hold
from rmqclient.failures.application_errors import is_a
from rmqclient.failures.failure import DEATH, Failure
from rmqclient.failures.retry import Outcome, Retries
from rmqclient.failures.suspend import Suspend
from rmqclient.handler import Handler
from rmqclient.message import ReceivedMessage
from rmqclient.steps.ends import failures_in
from rmqclient.store.errors import QueueError
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_SHORTEST_S, _LONGEST_S = 0.01, 30.0


class Suspension:
    """How the failed messages of one handler are held."""

    def __init__(self, handler: Handler, config: ConsumerConfig, retries: Retries, counters: Counters) -> None:
        self._group = handler.group
        self._policy = handler.retry
        self._pause_s = min(max(config.suspend_ms / 1000, _SHORTEST_S), _LONGEST_S)
        self._retries = retries
        self._counters = counters

    def before(self, calls: Calls, queue: ProcessQueue, messages: list[ReceivedMessage]) -> Hold | Disposition | None:
        """Return None if the messages of one call may be handled.

        They may not if too many attempts ended in deaths, and if one of them cannot be opened.
        """
        died = messages[0].delivery_attempt - 1
        if died > self._policy.max_retries:
            if not self._bury(queue, messages, self._death(queue, messages[0], died)):
                return Hold(self._pause_s, messages)
            self._count_failed(queue, len(messages))
            return Disposition.BURIED
        unopened = next((message.unopened for message in messages if message.unopened is not None), None)
        return None if unopened is None else self.after(calls, queue, messages, unopened)

    def after(
        self, calls: Calls, queue: ProcessQueue, messages: list[ReceivedMessage], error: BaseException
    ) -> Hold | Disposition:
        """Count the failure of one call, and return what follows it."""
        message = messages[0]
        attempt = message.delivery_attempt
        failed = failures_in(error) * len(messages)
        calls.running_slot.fail(failed)
        self._count_failed(queue, failed)
        if not failed:  # another member goes on with the message
            return _again(self._pause_s, messages)
        asked = is_a(error, Suspend)
        if self._policy.outcome(attempt, None if asked or _is_cancelled(error) else error) is Outcome.DEAD_LETTER:
            failure = Failure.raised(error, attempt, self._retries.client_id)
            if self._bury(queue, messages, failure):
                return Disposition.BURIED
        pause_s = max(error.seconds, _SHORTEST_S) if is_a(error, Suspend) else self._pause_s
        _log.log(
            logging.INFO if asked else logging.WARNING,
            "group %s: attempt %d of message %s (%s, queue %d, offset %d) failed: %s: %s; again in %.3g s, and the "
            "messages behind it wait",
            self._group, attempt, message.message_id, message.topic, message.queue_id, message.queue_offset,
            type(error).__name__, error, pause_s, exc_info=error if attempt == 1 and not asked else None,
            extra=fields_of(message, self._group),
        )  # fmt: skip
        return _again(pause_s, messages)

    def _death(self, queue: ProcessQueue, message: ReceivedMessage, attempt: int) -> Failure:
        """Return the last attempt, which ended in a death, with what is known of it."""
        if deaths := [each for each in _deaths(queue, message) if each.attempt >= attempt]:
            return replace(deaths[-1], attempt=attempt)
        text = "its process died, or lost the queue, while it handled the message"
        return Failure(attempt=attempt, error=DEATH, text=text, worker=self._retries.client_id)

    def _count_failed(self, queue: ProcessQueue, attempts: int) -> None:
        """Count attempts before their messages are given back: what failed is never less than the dead letters."""
        queue.grant.count_failed(attempts)
        self._counters.add(failed=attempts)

    def _bury(self, queue: ProcessQueue, messages: list[ReceivedMessage], failure: Failure) -> bool:
        """Store the dead letters. False when they cannot be stored: the messages are held, so no message is lost."""
        try:
            for message in messages:
                steps = begun_steps(message)
                before = (each for each in _deaths(queue, message) if each.attempt < failure.attempt)
                self._retries.dead_letter(message, failure, *before, marks=None if steps is None else steps.count())
        except (QueueError, OSError, MemoryError) as error:
            _log.error("group %s: a dead letter cannot be stored, trying again: %s", self._group, error)
            return False
        message = messages[0]
        _log.error(
            "group %s: %d messages from %s (%s, queue %d, offset %d) on are dead letters after attempt %d: %s: %s",
            self._group, len(messages), message.message_id, message.topic, message.queue_id, message.queue_offset,
            failure.attempt, failure.error, failure.text, extra=fields_of(message, self._group),
        )  # fmt: skip
        return True


def _deaths(queue: ProcessQueue, message: ReceivedMessage) -> list[Failure]:
    """Return the deaths of processes that handled a message, as far as they are known, the last one last."""
    return [Failure.died(each, message) for each in queue.deaths.get(message.queue_offset, ())]


def _again(pause_s: float, messages: list[ReceivedMessage]) -> Hold:
    return Hold(pause_s, [message.redelivered() for message in messages])


def _is_cancelled(error: BaseException) -> bool:
    """Tell whether a coroutine was cancelled, as at the end of its event loop: that says nothing about its message."""
    if is_a(error, Exception):
        return False
    from asyncio import CancelledError  # noqa: PLC0415 - only programs with coroutines need it

    return is_a(error, CancelledError)
