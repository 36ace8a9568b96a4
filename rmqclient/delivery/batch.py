"""Batch delivery: a list of messages in one call, each list from one queue, lists side by side.

==============  ==========================================================================================
handler         then
==============  ==========================================================================================
returns         the messages are acknowledged, under one lock
raises          each of them is sent back by itself, as by :mod:`rmqclient.delivery.concurrent`
==============  ==========================================================================================

So that one bad message takes no others with it: a body that does not decode is a failure of its message alone, and a
message that comes from the retry topic, or that a process died with, is handed over in a list of its own.

A batch waits ``linger`` to become full, from its first message on; other queues are served meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqclient.codecs import element_decoder_for
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.concurrent import ConcurrentDelivery
from rmqclient.delivery.delivery import Calls
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.groups.members import Member
from rmqclient.handler import Handler
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageStore


class BatchDelivery(ConcurrentDelivery):
    """The threads of one handler in one process, which takes many messages in a call."""

    def __init__(self, store: MessageStore, handler: Handler, member: Member, config: ConsumerConfig) -> None:
        super().__init__(store, handler, member, config)
        self._decode = element_decoder_for(handler.function)

    def _serve(self, calls: Calls) -> None:
        with self._invoking(self._handler.function) as call:
            while (taken := self._take()) is not None:
                self._handle_batch(calls, call, *taken)

    def _batch(self, queue: ProcessQueue) -> list[ReceivedMessage]:
        size, linger_s = self._handler.batch_size, self._handler.linger_s
        return self._own_messages(queue, queue.take_one() if queue.is_retry else queue.gather(size, linger_s))

    def _handle_batch(
        self, calls: Calls, call: Callable[[Any], object], queue: ProcessQueue, batch: list[ReceivedMessage]
    ) -> None:
        self._count_running(queue, 1)
        calls.running = len(batch)
        calls.slot.serve(queue.slot.number)
        calls.slot.begin_batch(batch)
        calls.begun += 1
        handled = 0
        kept: list[ReceivedMessage] = []
        if not (self._stopping or queue.revoked):
            handled, kept = self._call_with(call, queue, batch)
        calls.slot.rest()
        calls.running = 0
        self._count_running(queue, -1)
        self._settle(queue, batch, kept, handled)

    def _call_with(
        self, call: Callable[[Any], object], queue: ProcessQueue, batch: list[ReceivedMessage]
    ) -> tuple[int, list[ReceivedMessage]]:
        """Return how many messages are acknowledged, and those that failed and could not be stored for their retry."""
        errors: list[tuple[ReceivedMessage, BaseException]] = []
        decoded: list[ReceivedMessage] = []
        bodies: list[object] = []
        for message in batch:
            try:
                bodies.append(self._decode(message))
                decoded.append(message)
            except Exception as error:  # noqa: BLE001 - whatever a decoder raises
                errors.append((message, error))
        handled = 0
        if bodies:
            try:
                call(bodies)
            except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler is a failure of its batch, too
                errors += [(message, error) for message in decoded]
            else:
                if self._acknowledge_all(queue, decoded):
                    handled = len(decoded)
                else:
                    self._refused(queue)
        return handled, [message for message, error in errors if not self._failed(queue, message, error)]
