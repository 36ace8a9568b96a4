"""Delivery: handler threads that take batches, and what the ways of handling a batch have in common.

The threads of one handler take turns at looking for messages: the one whose turn it is takes a batch from the next
queue that has one and handles it itself, while another one looks on. So no message changes threads between wake-up
and handler. With nothing to do the one whose turn it is sleeps on the arrival lane of its member.

=============================================  ========================================================
way                                            what handling a batch means
=============================================  ========================================================
:mod:`rmqclient.delivery.concurrent`           messages of a queue out of order and side by side
:mod:`rmqclient.delivery.batch`                the same, many messages in one call
:mod:`rmqclient.delivery.orderly`              one message of a queue after the other
:mod:`rmqclient.delivery.key_ordered`          one message of a sharding key after the other
=============================================  ========================================================
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rmqclient.backend import open_backend
from rmqclient.codecs import batch_decoder_for, decoder_for, message_itself
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.failures.failure import DEATH, Failure, history
from rmqclient.failures.retry import Outcome, Retries
from rmqclient.handler import Handler
from rmqclient.message import ReceivedMessage
from rmqclient.sending.reply import Replier
from rmqclient.store import Member, MessageStore, Running
from rmqclient.store.errors import QueueError, StoreBusy
from rmqclient.store.log.record import reason
from rmqclient.store.runtime.shared_state import arrival_lane_at

_log = logging.getLogger(__name__)

_LONGEST_SLEEP_MS = 500
"""A sender killed between publishing and waking leaves a sleeper; it looks again by itself after so long."""


_DEATHS_AT_MOST = 2
"""After so many deaths of its process a message is not run in place again."""


class Calls:
    """The handler calls of one thread, so that one which never returns is noticed while other threads go on."""

    slot: Running
    """Where the thread tells what it runs, for the case that this kills the process. Set before the thread starts."""

    queue: ProcessQueue
    """Where its batch comes from. Set before there is a rest of one."""

    def __init__(self) -> None:
        self.begun = 0
        self.running = 0
        """Messages whose handler runs now."""
        self.rest: Iterator[ReceivedMessage] = iter(())
        """What it has not begun of its batch, for other threads to take over."""
        self.relieved: list[ReceivedMessage] = []
        """What others have taken over of it."""
        self._begun_at_look = 0
        self._looked_at = 0.0
        self._seen = 0
        self._seen_at = 0

    def running_since(self, now: int) -> int:
        """Return when the present call was first seen running, 0 when none runs."""
        if self.begun != self._seen or not self.running:
            self._seen, self._seen_at = self.begun, now
        return self._seen_at if self.running else 0

    def is_kept(self, duration_s: float) -> bool:
        """Tell whether one call has kept this thread for so long; seen by whoever asks, as above."""
        now = time.monotonic()
        if self.begun != self._begun_at_look or not self.running:
            self._begun_at_look, self._looked_at = self.begun, now
        return now - self._looked_at >= duration_s


class Delivery(ABC):
    """The threads of one handler in one process."""

    keeps_order = False
    """A queue goes to another member only when no handler runs with a message of it, however long that takes."""

    def __init__(self, store: MessageStore, handler: Handler, member: Member, config: ConsumerConfig) -> None:
        self._words = store.state.words
        self._member = member
        self._lane = member.arrival_lane
        self._lane_at = arrival_lane_at(member.arrival_lane)
        self.retries = Retries(store, handler.group, handler.retry, member.client_id)
        self.siblings: dict[str, Delivery] = {}
        """By topic, the deliveries of the group in this process, this one too; they share the group's retry topic."""
        self._handler = handler
        self._call = (
            Replier(open_backend(store)).answering(handler, calling(handler)) if handler.replies else calling(handler)
        )
        self._config = config
        self._turn = threading.Lock()
        self._own_queues: tuple[ProcessQueue, ...] = ()
        self._retry_queues: tuple[ProcessQueue, ...] = ()
        self._queues: tuple[ProcessQueue, ...] = ()
        self._handed: deque[tuple[ProcessQueue, ReceivedMessage]] = deque()
        self._next = 0
        self._stopping = False
        self._counting = threading.Lock()
        self.handled = 0
        self.failed = 0
        self.refused = 0
        """Acknowledgements refused because the queue had gone to somebody else."""
        self._calls = [Calls() for _ in range(handler.threads)]
        self._threads = [
            threading.Thread(target=self._run, args=(calls,), name=f"rmq-{handler.group}-{number}", daemon=True)
            for number, calls in enumerate(self._calls)
        ]

    @property
    def topic(self) -> str:
        """The topic of the handler."""
        return self._handler.topic

    @property
    def running(self) -> int:
        """Messages whose handler runs now."""
        return sum(calls.running for calls in self._calls)

    def start(self) -> None:
        """Begin to deliver. Raises TableFull, StoreBusy."""
        slots = self._member.table.running.claim(self._member.slot, self._member.incarnation, len(self._calls))
        for calls, slot in zip(self._calls, slots, strict=True):
            calls.slot = slot
        for thread in self._threads:
            thread.start()

    @property
    def queues(self) -> tuple[ProcessQueue, ...]:
        """The queues of the handler's own topic that are delivered from now."""
        return self._own_queues

    def set_queues(self, queues: tuple[ProcessQueue, ...]) -> None:
        """Deliver from these queues from now on."""
        self._own_queues = queues
        self._queues = queues + self._retry_queues
        self.wake()

    def set_retry_queues(self, queues: tuple[ProcessQueue, ...]) -> None:
        """Deliver from these queues of the group's retry topic, too."""
        self._retry_queues = queues
        self._queues = self._own_queues + queues
        self.wake()

    def hand(self, queue: ProcessQueue, message: ReceivedMessage) -> None:
        """Deliver this message, which another delivery has taken from the group's retry topic."""
        self._handed.append((queue, message))
        self.wake()

    def wake(self) -> None:
        """Make a sleeping thread look again."""
        self._words.signal(self._lane_at)

    def stop_taking(self) -> None:
        """Begin no further message; running ones go on."""
        self._stopping = True
        self.wake()

    def join(self, timeout_s: float) -> int:
        """Wait for the running handlers; return how many still run when the time is up."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return self.running if any(thread.is_alive() for thread in self._threads) else 0

    def is_handling(self, queue: ProcessQueue) -> bool:
        """Tell whether a handler runs, or is about to run, with a message of this queue."""
        return queue.running > 0

    def longest_running_since(self, now: int) -> int:
        """Return since when the handler call that runs longest has been seen running, 0 when none runs.

        ``now`` is CLOCK_BOOTTIME in ns. Seen by whoever asks, so it is as exact as the asking is frequent.
        """
        return min((since for calls in self._calls if (since := calls.running_since(now))), default=0)

    def _run(self, calls: Calls) -> None:
        try:
            self._serve(calls)
        finally:
            calls.slot.release()

    @contextmanager
    def _invoking(self, function: Callable[[Any], Any]) -> Iterator[Callable[[Any], object]]:
        """Give one thread what calls ``function`` for the handler and returns when it has ended, a coroutine too."""
        if not inspect.iscoroutinefunction(self._handler.function):
            yield function
            return
        with asyncio.Runner() as runner:

            def run(given: object) -> None:
                error = runner.run(_error_of(function(given)))
                if error is not None:
                    raise error

            yield run

    @abstractmethod
    def _serve(self, calls: Calls) -> None:
        """Take and handle batches in one thread until :meth:`stop_taking`.

        Say in ``calls.slot`` what is about to run before it runs: the queue's slot number with ``serve``, then the
        message with ``begin``, or an ordered batch with ``begin_batch``; and ``rest`` when nothing runs any more.
        """

    def _take(self) -> tuple[ProcessQueue, list[ReceivedMessage]] | None:
        """Return the next batch; sleeps with the turn held until there is one. None when stopping."""
        with self._turn:
            while not self._stopping:
                if self._handed:
                    queue, message = self._handed.popleft()
                    return queue, [message]
                queues = self._queues
                for step in range(len(queues)):
                    queue = queues[(self._next + step) % len(queues)]
                    batch = self._batch(queue)
                    if queue.grant.damaged:
                        report_damaged(queue)
                    if batch:
                        self._next += step + 1
                        return queue, batch
                relieved = self._relieve()
                if relieved is not None:
                    return relieved
                self._sleep(queues)
        return None

    def _relieve(self) -> tuple[ProcessQueue, list[ReceivedMessage]] | None:
        """Return a message that another thread has taken and cannot get to; with the turn held, and nothing to take."""
        return None

    def _batch(self, queue: ProcessQueue) -> list[ReceivedMessage]:
        """Return what is handled next of one queue; only the thread whose turn it is asks."""
        return self._own_messages(queue, queue.take())

    def _next_due(self, queue: ProcessQueue) -> float | None:
        """Return when, on the monotonic clock, to look at a queue again without a new message."""
        return queue.next_due()

    def _sleep(self, queues: tuple[ProcessQueue, ...]) -> None:
        seen = self._words.load32(self._lane_at)
        if queues is not self._queues or self._handed or self._stopping:
            return
        pause_s = self._longest_sleep_s()
        for queue in queues:
            due = self._next_due(queue)
            if due is not None:
                pause_s = min(pause_s, due - time.monotonic())
            if not queue.revoked and not queue.is_blocked and queue.grant.arm(self._lane):
                return
        if pause_s > 0:
            self._words.wait(self._lane_at, seen, max(1, int(pause_s * 1000)))

    def _longest_sleep_s(self) -> float:
        return _LONGEST_SLEEP_MS / 1000

    def _own_messages(self, queue: ProcessQueue, batch: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Return what is to run here; send back what killed too many processes, pass on what is another handler's."""
        if not batch or not (queue.interrupted or queue.is_retry or queue.has_unopened):
            return batch
        own: list[ReceivedMessage] = []
        self._count_running(queue, 1)  # before the look: a queue is not released while something of it is sent back
        try:
            for message in batch:
                if queue.revoked:
                    break
                delivery = self.siblings.get(message.topic) if queue.is_retry else self
                if message.unopened is not None:
                    self._give_back_unopened(queue, message, message.unopened)
                elif delivery is None:
                    self._miss_handler(queue, message)
                elif delivery.gave_back_interrupted(queue, message):
                    continue
                elif delivery is self:
                    own.append(message)
                else:
                    delivery.hand(queue, message)
        finally:
            self._count_running(queue, -1)
        return own

    def gave_back_interrupted(self, queue: ProcessQueue, message: ReceivedMessage) -> bool:
        """Send back a message that has killed its process too often to be run in place again, and tell whether it was.

        The first death may have had another reason, such as a deploy, so it costs no delay. After the second one the
        message would go on killing the process of other messages.
        """
        told = queue.interrupted.get(message.queue_offset)
        if told is None:
            return False
        before = [entry for entry in history(message.properties) if entry.get("error") == DEATH]
        *earlier, last = (Failure.died(each, message) for each in told)
        is_patient = len(before) + told[-1].begun < _DEATHS_AT_MOST or self._handler.ordered  # which waits in place
        if is_patient and last.attempt <= self.retries.policy.max_retries:
            return False
        if self._give_back(queue, message, last, *earlier):
            queue.settle([message])
            self._count_failed()
        else:
            queue.retry_later(message)
        return True

    def _give_back_unopened(self, queue: ProcessQueue, batch: ReceivedMessage, error: BaseException) -> None:
        """Treat a compressed batch that cannot be opened as one message whose handler raised this."""
        if self._failed(queue, batch, error):
            queue.settle([batch])

    def _miss_handler(self, queue: ProcessQueue, message: ReceivedMessage) -> None:
        error = LookupError(f"this process has no handler of group {self._handler.group} for topic {message.topic}")
        if self._give_back(queue, message, Failure.raised(error, message.delivery_attempt, self._member.client_id)):
            queue.settle([message])
            self._count_failed()
        else:
            queue.retry_later(message)

    def _failed(self, queue: ProcessQueue, message: ReceivedMessage, error: BaseException) -> bool:
        """Send back a message whose handler raised. False when it could not be stored: it waits for a try in place."""
        failure = Failure.raised(error, message.delivery_attempt, self._member.client_id)
        earlier = [Failure.died(each, message) for each in queue.interrupted.get(message.queue_offset, ())]
        _log.warning(
            "group %s: attempt %d of message %s (%s, queue %d, offset %d) failed: %s: %s",
            self._handler.group, message.delivery_attempt, message.message_id, message.topic, message.queue_id,
            message.queue_offset, failure.error, failure.text,
            exc_info=error if message.delivery_attempt == 1 else None,
        )  # fmt: skip
        if not self._give_back(queue, message, failure, *earlier):
            queue.retry_later(message.again())
            return False
        self._count_failed()
        return True

    def _give_back(self, queue: ProcessQueue, message: ReceivedMessage, failure: Failure, *earlier: Failure) -> bool:
        """Store a message for its retry or as a dead letter, then acknowledge it. False when it cannot be stored."""
        try:
            outcome = self._store(message, failure, *earlier)
        except (QueueError, OSError, MemoryError) as error:
            _log.error(
                "group %s: message %s cannot be stored for its retry, so it is kept in place: %s: %s",
                self._handler.group, message.message_id, type(error).__name__, error,
            )  # fmt: skip
            return False
        if outcome is Outcome.DEAD_LETTER:
            _log.error(
                "group %s: message %s of %s is a dead letter after attempt %d: %s: %s",
                self._handler.group, message.message_id, message.topic, failure.attempt, failure.error, failure.text,
            )  # fmt: skip
        if not self._acknowledge_late(queue, message):
            self._refused(queue)
        return True

    def _store(self, message: ReceivedMessage, failure: Failure, *earlier: Failure) -> Outcome | None:
        """Store a message that failed; None when it is dropped."""
        return self.retries.send_back(message, failure, *earlier)

    def _count_failed(self) -> None:
        with self._counting:
            self.failed += 1

    def _acknowledge_all(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> bool:
        """Acknowledge the messages of one call together, however long somebody holds the mutex."""
        if len(messages) == 1:
            return self._acknowledge_late(queue, messages[0])
        while True:
            try:
                return queue.grant.acknowledge_offsets(queue.grant.finish(messages))
            except StoreBusy as error:
                _log.warning("acknowledging %d messages of %s: %s", len(messages), queue.queue, error)
                if self._stopping or queue.revoked:
                    return False

    def _acknowledge_late(self, queue: ProcessQueue, message: ReceivedMessage) -> bool:
        """Acknowledge a message however long somebody holds the mutex: its handler must not run again for that."""
        while True:
            try:
                return queue.grant.acknowledge(message)
            except StoreBusy as error:
                _log.warning("acknowledging message %d of %s: %s", message.queue_offset, queue.queue, error)
                if self._stopping or queue.revoked:
                    return False

    def _settle(
        self, queue: ProcessQueue, batch: list[ReceivedMessage], retried: list[ReceivedMessage], handled: int
    ) -> None:
        queue.settle([message for message in batch if message not in retried] if retried else batch)
        with self._counting:
            self.handled += handled
            self.failed += len(retried)

    def _refused(self, queue: ProcessQueue) -> None:
        if not queue.revoked:
            queue.revoked = True
            _log.warning(
                "group %s lost queue %d of %s while a message was handled: it will be delivered again elsewhere",
                self._handler.group, queue.queue.queue_id, queue.queue.topic,
            )  # fmt: skip
        self.refused += 1

    def _count_running(self, queue: ProcessQueue, batches: int) -> None:
        with self._counting:
            queue.running += batches


async def _error_of(coroutine: Awaitable[object]) -> BaseException | None:
    """Await a coroutine and return what it raised: raised in the loop, SystemExit would end that, too."""
    try:
        await coroutine
    except BaseException as error:  # noqa: BLE001 - for the reason above
        return error
    return None


def calling(handler: Handler) -> Callable[[Any], Any]:
    """Return what calls a handler, given a message or a list of them, with what its annotation asks for."""
    function = handler.function
    decode: Callable[[Any], object] = decoder_for(function) if handler.batch == 1 else batch_decoder_for(function)
    if decode is message_itself:
        return function
    if inspect.iscoroutinefunction(function):

        async def call_async(given: object) -> object:
            return await function(decode(given))

        return call_async
    return lambda given: function(decode(given))


def report_damaged(queue: ProcessQueue) -> None:
    """Say which messages a take stepped over because their records are damaged."""
    for queue_offset, commit_log_offset, found in queue.grant.damaged:
        _log.error(
            "%s, queue %d, offset %d: the record at %d of the commit log is damaged (%s); it was stepped over",
            queue.queue.topic, queue.queue.queue_id, queue_offset, commit_log_offset, reason(found),
        )  # fmt: skip
    queue.grant.damaged.clear()
