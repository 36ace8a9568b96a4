"""Retry: a message that its handler could not finish is stored again, and only then acknowledged where it failed.

The copy goes to ``%RETRY%group`` after a delay, and the group takes it from there by itself. After the last attempt it
goes to ``%DLQ%group``. The delay is a delay level of RocketMQ, or any duration, for which the copy waits in the timer.
Properties of the copy, as ``AbstractSendMessageProcessor.consumerSendMsgBack`` sets them:

=======================  ==========================================================================================
``RETRY_TOPIC``          the topic where it failed first; stays
``ORIGIN_MESSAGE_ID``    offset message id of its first record; stays
``WAIT``                 ``false``
``DELAY``                the delay level, if it has one; ``0`` in a dead letter
``DLQ_ORIGIN_TOPIC``     of a dead letter, as ``RETRY_TOPIC`` [RocketMQ 5]
``DLQ_ORIGIN_MESSAGE_ID``  of a dead letter, as ``ORIGIN_MESSAGE_ID`` [RocketMQ 5]
``RMQ_FAILURES``         what failed when, see :mod:`rmqclient.failures.failure`
``RMQ_STEPS_DONE``       of a message with durable steps: the group, and how many of them are stored
=======================  ==========================================================================================

``reconsume_times`` of the copy is the number of attempts so far. The unique id stays the same.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from rmqclient.backend.backend import Backend
from rmqclient.backend.protocols import ProducerSettings, Sender
from rmqclient.duration import LONGEST_DELAY, Duration, in_seconds
from rmqclient.errors import BodyDoesNotFit, HandlerError, ReplyRejected, StepRejected
from rmqclient.failures.application_errors import is_a, is_one_of
from rmqclient.failures.failure import Failure, with_failures, without_longest
from rmqclient.failures.origin import FIRST_LEVEL, origin_message_id, origin_topic
from rmqclient.failures.suspend import Suspend
from rmqclient.message import ReceivedMessage, SendResult
from rmqclient.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rmqclient.store import Durability, MessageQueue, clock
from rmqclient.store.errors import NotFlushed, NotReplicated, PropertiesTooLarge
from rmqclient.store.numbers import whole
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

MAX_LEVEL = 18

_OF_A_WAIT = frozenset(
    (
        *("DELAY", "REAL_TOPIC", "REAL_QID"),
        *("TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_QUEUE_OFFSET", "TIMER_ROLL_TIMES"),
        "RMQ_STEPS",  # of a durable step that slept: this copy waits because it failed
    )
)

_NEVER_MENDED = (BodyDoesNotFit, StepRejected, ReplyRejected)
"""What the next attempt would meet again."""

_FLUSH_TRIES = 5

_PASSED_ON_AFTER_MS = 1_000
"""How long a message waits for the retry topic to go to a process that has its handler."""


class Outcome(enum.Enum):
    """The fate of a message that failed."""

    RETRY = "retry"
    DEAD_LETTER = "dead letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, when, and after which exceptions a message is delivered again, before it becomes a dead letter.

    The death of the handling process counts as a delivery, and is always retried, whatever the exceptions say.

    Raises HandlerError for a negative number, a delay that is negative or above ten years, a delay level outside 1 to
    18, both delays and delay levels, more of them than retries, anything except classes of exceptions, and a class in
    ``retry_on`` that ``dead_letter_on`` has, too.
    """

    max_retries: int = 16
    """Deliveries after the first one. [maxReconsumeTimes]"""

    delays: tuple[Duration, ...] = ()
    """Pause before the first retry, before the second, and so on; the last one repeats. Each is a timedelta or seconds,
    0 to ten years, and kept to the ms. Empty: the delay levels count."""

    delay_levels: tuple[int, ...] = ()
    """Delay level of the first retry, of the second, and so on; the last one repeats. Empty: 3 + retries so far, which
    is 10 s, 30 s, 1 min and so on."""

    retry_on: tuple[type[BaseException], ...] = (BaseException,)
    """Other exceptions make a dead letter at once. So does a body that its handler cannot take, because it never will,
    and a reply or the result of a step that cannot be stored, because each attempt would do its work again:
    BodyDoesNotFit, ReplyRejected and StepRejected are retried only if they are among these themselves."""

    dead_letter_on: tuple[type[BaseException], ...] = ()
    """These make a dead letter at once, whatever ``retry_on`` says."""

    def __post_init__(self) -> None:
        try:
            whole("max_retries", self.max_retries)
        except (TypeError, ValueError) as error:
            raise HandlerError(str(error)) from error
        if not isinstance(self.delay_levels, tuple):
            raise HandlerError(f"delay_levels={self.delay_levels!r}: must be a tuple, such as (1, 3, 5)")
        for level in self.delay_levels:
            if not _is_number(level) or not 1 <= level <= MAX_LEVEL:
                raise HandlerError(
                    f"delay_levels={self.delay_levels!r}: {level!r} is not a delay level; use 1 to {MAX_LEVEL}"
                )
        _check_delays(self.delays)
        if self.delays and self.delay_levels:
            raise HandlerError(f"delays={self.delays!r}, delay_levels={self.delay_levels!r}: give one of them")
        for name in ("delays", "delay_levels"):
            if len(pauses := getattr(self, name)) > self.max_retries:
                raise HandlerError(
                    f"{name}={pauses!r}, max_retries={self.max_retries}: {len(pauses)} pauses are more than the "
                    f"retries; give max_retries={len(pauses)}, or fewer pauses"
                )
        for name in ("retry_on", "dead_letter_on"):
            _check_classes(name, getattr(self, name))
        if self.retry_on != (BaseException,):
            for each in self.retry_on:
                if issubclass(each, self.dead_letter_on):
                    raise HandlerError(
                        f"retry_on: {each.__name__} is never retried, because dead_letter_on={self.dead_letter_on!r} "
                        "comes first; leave it out of one of them"
                    )

    def outcome(self, attempt: int, exception: BaseException | None) -> Outcome:
        """Return the fate of a message whose delivery ``attempt`` failed; ``exception`` is None for a death."""
        is_final = exception is not None and (
            is_one_of(exception, self.dead_letter_on)
            or not is_one_of(exception, self.retry_on)
            or any(is_a(exception, each) and each not in self.retry_on for each in _NEVER_MENDED)
        )
        return Outcome.DEAD_LETTER if is_final or attempt > self.max_retries else Outcome.RETRY

    def delay_level(self, attempt: int) -> int:
        """Return the delay level of the retry after the failed delivery ``attempt``, which counts from 1.

        0 means that the delay of the retry is :meth:`delay_s`.
        """
        if self.delays:
            return 0
        if self.delay_levels:
            return self.delay_levels[min(attempt, len(self.delay_levels)) - 1]
        return min(FIRST_LEVEL + attempt - 1, MAX_LEVEL)

    def delay_s(self, attempt: int) -> float:
        """Return the seconds before the retry after the failed delivery ``attempt``; 0 if it has a delay level."""
        return in_seconds("delay", self.delays[min(attempt, len(self.delays)) - 1]) if self.delays else 0.0


def _check_delays(delays: object) -> None:
    if not isinstance(delays, tuple):
        raise HandlerError(f"delays={delays!r}: must be a tuple of durations, such as (1.0, 30.0)")
    for delay in delays:
        try:
            in_seconds("delay", delay, most=LONGEST_DELAY.total_seconds())
        except (TypeError, ValueError) as error:
            raise HandlerError(f"delays={delays!r}: {error}") from error


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_classes(name: str, classes: object) -> None:
    if not isinstance(classes, tuple):
        raise HandlerError(f"{name}={classes!r}: must be a tuple of exception classes, such as (ValueError,)")
    for each in classes:
        if not isinstance(each, type) or not issubclass(each, BaseException):
            raise HandlerError(f"{name}: {each!r} is not an exception class")


def retry_topic(group: str) -> str:
    """Return the topic in which the messages of a group wait for their next attempt."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic of a group's dead letters."""
    return DEAD_LETTER_PREFIX + group


def waiting_properties(message: ReceivedMessage) -> dict[str, str]:
    """Return the properties of a copy of a message that waits for its next delivery, whatever it waits for."""
    return _without_wait({**message.properties, **_origin(message)})


class Retries:
    """Stores the failed messages of one group; safe for threads."""

    def __init__(self, backend: Backend, group: str, policy: RetryPolicy, client_id: str) -> None:
        self.policy = policy
        self.client_id = client_id
        self._backend = backend
        self._group = group
        self._sender: Sender | None = None

    def send_back(
        self, message: ReceivedMessage, failure: Failure, *before: Failure, marks: Mapping[str, str] | None = None
    ) -> Outcome:
        """Store a message for its next attempt or as a dead letter, as the policy says; then it may be acknowledged.

        ``before`` are earlier failures that are missing from its history, ``marks`` properties to set. Raises what
        :meth:`rmqclient.sending.producer.Producer.send` raises; then it must not be acknowledged.
        """
        if failure.is_passed_on:
            return self._pass_on(message, failure)
        if self.policy.outcome(failure.attempt, failure.exception) is Outcome.DEAD_LETTER:
            return self.dead_letter(message, failure, *before, marks=marks)
        properties = self._properties(message, (*before, failure), marks)
        if failure.exception is not None and is_a(failure.exception, Suspend):
            level, delay_s = 0, failure.exception.seconds
        else:
            level, delay_s = self.policy.delay_level(failure.attempt), self.policy.delay_s(failure.attempt)
        if not level:
            properties = _without_wait(properties)
        due_ms = -(-(clock.wall_ns() + round(delay_s * 1e9)) // 1_000_000) if delay_s else 0
        try:
            self._append(message, retry_topic(self._group), properties, failure.attempt, level, due_ms)
        except PropertiesTooLarge as error:
            _log.error("group %s: message %s cannot be tried again: %s", self._group, message.message_id, error)
            return self.dead_letter(message, failure, *before, marks=marks)
        return Outcome.RETRY

    def dead_letter(
        self, message: ReceivedMessage, failure: Failure, *before: Failure, marks: Mapping[str, str] | None = None
    ) -> Outcome:
        """Store a message as a dead letter; then it may be acknowledged. Raises as :meth:`send_back`."""
        properties = self._properties(message, (*before, failure), marks)
        properties |= {
            "DELAY": "0",
            "DLQ_ORIGIN_TOPIC": origin_topic(message),
            "DLQ_ORIGIN_MESSAGE_ID": origin_message_id(message),
        }
        properties, left_out = without_longest(properties)
        if left_out:
            _log.error(
                "group %s: the dead letter of message %s has no room for its properties %s",
                self._group,
                message.message_id,
                ", ".join(map(repr, left_out)),
            )
        self._append(message, dead_letter_topic(self._group), properties, failure.attempt)
        return Outcome.DEAD_LETTER

    def _pass_on(self, message: ReceivedMessage, failure: Failure) -> Outcome:
        """Store a message for the same attempt in another process."""
        due_ms = clock.wall_ms() + _PASSED_ON_AFTER_MS
        properties = _without_wait(self._properties(message, (failure,)))
        self._append(message, retry_topic(self._group), properties, failure.attempt - 1, due_ms=due_ms)
        return Outcome.RETRY

    @staticmethod
    def _properties(
        message: ReceivedMessage, failures: tuple[Failure, ...], marks: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        return with_failures({**message.properties, **_origin(message), **(marks or {})}, failures)

    def _append(
        self,
        message: ReceivedMessage,
        topic: str,
        properties: dict[str, str],
        reconsume_times: int,
        delay_level: int = 0,
        due_ms: int = 0,
    ) -> None:
        if self._sender is None:
            self._sender = copying(self._backend)
        try:
            copy: SendResult | None = self._sender.append_copy(
                message,
                MessageQueue(topic, 0),
                properties,
                reconsume_times=reconsume_times,
                delay_level=delay_level,
                due_ms=due_ms,
            )
        except NotReplicated:  # it is stored: another one would be a second attempt, or a second dead letter
            copy = None
        flush(self._backend, self._sender, copy)


def _origin(message: ReceivedMessage) -> dict[str, str]:
    return {
        "RETRY_TOPIC": origin_topic(message),
        "ORIGIN_MESSAGE_ID": origin_message_id(message),
        "WAIT": "false",
    }


def _without_wait(properties: dict[str, str]) -> dict[str, str]:
    """Leave out what an earlier wait put into the properties; the next wait writes its own."""
    return {name: value for name, value in properties.items() if name not in _OF_A_WAIT}


def copying(backend: Backend) -> Sender:
    """Return a sender for copies, which creates the topics of failed messages with one queue. [retryQueueNums]"""
    return backend.producers.sender(ProducerSettings(lambda topic: backend.topics.create(topic, 1)))


def flush(backend: Backend, sender: Sender, copy: SendResult | None) -> None:
    """With SYNC durability, wait until a copy is on the disk; None stands for all that is in the log.

    Raises NotFlushed, StorePoisoned.
    """
    end = copy.commit_log_end if copy is not None else None
    for left in reversed(range(_FLUSH_TRIES if backend.limits.durability is Durability.SYNC else 0)):
        try:
            sender.wait_until_flushed(end)
        except NotFlushed:  # storing it again would make a second copy
            if not left:
                raise
        else:
            return
