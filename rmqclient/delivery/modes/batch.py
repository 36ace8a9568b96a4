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

from collections.abc import Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, TypeAlias

from rmqclient.backend.group_protocols import Death, Grant
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.calls import Calls
from rmqclient.delivery.delivery import Parts
from rmqclient.delivery.modes.concurrent import ConcurrentDelivery
from rmqclient.delivery.modes.concurrent_queue import ConcurrentQueue
from rmqclient.delivery.modes.gathering import Gathering
from rmqclient.delivery.modes.send_back import StoresFailures
from rmqclient.delivery.runner import Disposition
from rmqclient.handler import Batch
from rmqclient.message import ReceivedMessage

Errors: TypeAlias = list[tuple[ReceivedMessage, BaseException]]


class BatchQueue(ConcurrentQueue):
    """One granted queue, and the messages of it that are gathered for the next batch."""

    def __init__(
        self,
        grant: Grant,
        config: ConsumerConfig,
        deaths: Mapping[int, Sequence[Death]] | None = None,
        batch: Batch | None = None,
    ) -> None:
        super().__init__(grant, config, deaths, batch)
        self._size = batch.size if batch is not None and not self.is_retry else 1
        self._gathering = Gathering(self, batch.linger_s if batch is not None and not self.is_retry else 0.0)

    @property
    def has_waiting(self) -> bool:
        """Whether messages of the queue could begin if a thread were free, those that are gathered included."""
        return bool(self._gathering.held_back) or super().has_waiting

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

    queue_type = BatchQueue

    def __init__(self, parts: Parts, failures: StoresFailures) -> None:
        super().__init__(parts, failures)
        self._decode, call = parts.callers.of_batches(parts.handler)
        self._call = lambda decoded: call(*decoded)
        """Takes the messages of a call and what they were decoded into."""

    def _messages_of(self, given: Any) -> Sequence[ReceivedMessage]:
        messages: Sequence[ReceivedMessage] = given[0]
        return messages

    def _handle(self, calls: Calls, queue: ConcurrentQueue, batch: list[ReceivedMessage]) -> None:
        undecoded: Errors = []
        queue.enter()
        self._runner.run(
            calls,
            queue,
            [batch.copy()],
            partial(self._decode_and_call, calls, undecoded),
            calls.running_slot.begin_batch,
            partial(self._acknowledge, calls, queue, undecoded),
            partial(self._failed_with, undecoded),
        )
        self._account(calls, queue, batch)

    def _decode_and_call(self, calls: Calls, undecoded: Errors, batch: list[ReceivedMessage]) -> object:
        """Call the handler with the messages that can be decoded; take the others out of the batch."""
        bodies: list[object] = []
        for message in batch.copy():
            try:
                bodies.append(copy_context().run(self._decode, message))
            except Exception as error:  # noqa: BLE001 - whatever a decoder raises
                batch.remove(message)
                undecoded.append((message, error))
        calls.running = len(batch)
        return self._call((batch, bodies)) if batch else None

    def _acknowledge(
        self, calls: Calls, queue: ConcurrentQueue, undecoded: Errors, batch: list[ReceivedMessage]
    ) -> bool:
        taken = not batch or self._acknowledger.acknowledge_all(queue, batch, calls.running_slot)
        if undecoded:
            self.send_back.failed_in(calls, queue, undecoded)
        return taken

    def _failed_with(
        self,
        undecoded: Errors,
        calls: Calls,
        queue: ConcurrentQueue,
        messages: list[ReceivedMessage],
        error: BaseException,
    ) -> Disposition:
        return self.send_back.failed_in(calls, queue, [*undecoded, *((message, error) for message in messages)])
