"""Batch delivery: a list of messages in one call, each list from one queue, lists side by side.

==============  ==========================================================================================
handler         then
==============  ==========================================================================================
returns         the messages are acknowledged, under one lock
raises          each of them is sent back by itself, as by :mod:`rmqclient.delivery.modes.concurrent`
==============  ==========================================================================================

One bad message takes no others with it: a body that does not decode fails its message alone. A message that comes from
the retry topic, or that a process died with, is handed over in a list of its own.

A batch waits ``linger`` to become full, from its first message on; other queues are served meanwhile.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

from rmqclient.backend.group_protocols import Death, Grant, Membership
from rmqclient.backend.protocols import Backend
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.caller import Callers
from rmqclient.delivery.calls import Calls
from rmqclient.delivery.modes.concurrent import ConcurrentDelivery
from rmqclient.delivery.modes.concurrent_queue import ConcurrentQueue
from rmqclient.delivery.modes.gathering import Gathering
from rmqclient.delivery.modes.send_back import StoresFailures
from rmqclient.handler import Handler, check_ran
from rmqclient.message import ReceivedMessage
from rmqclient.steps.ends import failures_in
from rmqclient.tracing.incoming import Call, observed
from rmqclient.tracing.observers import Observer


class BatchQueue(ConcurrentQueue):
    """One granted queue, and the messages of it that are gathered for the next batch."""

    def __init__(
        self,
        grant: Grant,
        handler: Handler,
        config: ConsumerConfig,
        deaths: Mapping[int, Sequence[Death]],
    ) -> None:
        super().__init__(grant, config, deaths)
        self._size = 1 if self.is_retry else handler.batch_size
        self._gathering = Gathering(self, 0.0 if self.is_retry else handler.linger_s)

    def take(self) -> list[ReceivedMessage]:
        """Return the next batch; a message that runs alone comes as a batch of one."""
        if self.revoked or self.is_paused():
            return []
        if self._alone and (due := self.take_due()):
            return due
        return self._gathering.take(self._size)

    def held_back(self) -> list[float]:
        """Return when each message comes that was set aside, or waits for a full batch."""
        return [*super().held_back(), *self._gathering.held_back]

    def due_times(self) -> list[float]:
        """Return when the queue may have something to give, a batch that is not full included."""
        times, due = super().due_times(), self._gathering.due
        return times if due is None else [*times, due]


class BatchDelivery(ConcurrentDelivery):
    """The threads of one handler in one process, which takes many messages in a call."""

    def __init__(
        self,
        backend: Backend,
        handler: Handler,
        membership: Membership,
        failures: StoresFailures,
        config: ConsumerConfig,
        callers: Callers,
    ) -> None:
        super().__init__(backend, handler, membership, failures, config, callers)
        self._decode, call = callers.of_batches(handler)
        self._call_decoded: Call = lambda decoded: call(*decoded)
        """Takes the messages of a call and what they were decoded into."""

    def observe(self, observers: Sequence[Observer]) -> None:
        """Let observers see each call of the handler; before the start."""
        self._call_decoded = observed(self._handler, self._call_decoded, observers, operator.itemgetter(0))

    def make_queue(self, grant: Grant, deaths: Mapping[int, Sequence[Death]]) -> BatchQueue:
        """Return the process queue of this mode for a grant."""
        return BatchQueue(grant, self._handler, self._config, deaths)

    def _serve(self, calls: Calls) -> None:
        call = self._callers.waiting(self._handler, self._call_decoded)
        self._serve_with(functools.partial(self._handle_batch, call), calls)

    def _handle_batch(
        self, call: Callable[[Any], object], calls: Calls, queue: ConcurrentQueue, batch: list[ReceivedMessage]
    ) -> None:
        queue.enter()
        calls.running = len(batch)
        calls.running_slot.serve(queue.grant.group_queue)
        calls.running_slot.begin_batch(batch)
        calls.current.grant = queue.grant
        calls.begun += 1
        handled = 0
        kept: list[ReceivedMessage] = []
        if not (self._turns.stopping or queue.revoked):
            handled, kept = self._call_with(call, calls, queue, batch)
        calls.rest()
        calls.handled += handled
        self._account(queue, batch, kept)

    def _call_with(
        self, call: Callable[[Any], object], calls: Calls, queue: ConcurrentQueue, batch: list[ReceivedMessage]
    ) -> tuple[int, list[ReceivedMessage]]:
        """Return how many messages are acknowledged, and those that failed and could not be stored for their retry."""
        errors: list[tuple[ReceivedMessage, BaseException]] = []
        decoded: list[ReceivedMessage] = []
        bodies: list[object] = []
        for message in batch:
            try:
                bodies.append(copy_context().run(self._decode, message))
                decoded.append(message)
            except Exception as error:  # noqa: BLE001 - whatever a decoder raises
                errors.append((message, error))
        handled = 0
        if bodies:
            calls.current.message = decoded[0]
            try:
                check_ran(copy_context().run(call, (decoded, bodies)))
                calls.leave_if_forked()
            except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler is a failure of its batch, too
                calls.leave_if_forked(error)
                errors += [(message, error) for message in decoded]
            else:
                if self._acknowledger.acknowledge_all(queue, decoded):
                    handled = len(decoded)
                else:
                    self._acknowledger.refused(queue)
        calls.running_slot.fail(sum(failures_in(error) for _, error in errors))
        return handled, [message for message, error in errors if not self.send_back.failed(queue, message, error)]
