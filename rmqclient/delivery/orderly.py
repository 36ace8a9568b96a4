"""Orderly delivery: the messages of a queue one after the other, in the order of the queue.

Different queues run side by side in the threads of the handler; each is claimed by the thread that has its messages.

==============  ==========================================================================================
handler         then
==============  ==========================================================================================
returns         the message is acknowledged, and the next one is begun
raises          the queue is suspended, then the same message comes again: :mod:`rmqclient.delivery.suspension`
==============  ==========================================================================================

The order is kept through a rebalance, a crash and a restart. Nothing ahead of the message that runs is acknowledged,
but what a filter passes over, so a new owner begins at the committed offset, with the message that was not finished.
It becomes the owner when the old one's handler has returned, when the old process is dead, or when its lease has run
out. A process stopped past its lease that wakes up inside of its handler goes on there, beside the new owner: its
acknowledgement is refused, and so is the beginning of its next message.

A delivery attempt is counted in shared memory before the handler runs, under the mutex of the group-queue and with the
epoch of the grant (``held_offset`` and ``held_attempts``). So attempts are counted on when the owner changes, also for
a message that kills its process, as long as the machine runs. RocketMQ counts them in the client, and from 0 again.

A batch (``batch=100``) is a run of consecutive messages of one queue. Its attempt is the one of its first message; it
comes again as a whole, and becomes dead letters as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.delivery import Calls, Delivery
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.delivery.suspension import Suspension
from rmqclient.groups.members import Member
from rmqclient.handler import Handler
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageStore
from rmqclient.store.errors import StoreBusy

_log = logging.getLogger(__name__)


class OrderlyDelivery(Delivery):
    """The threads of one handler in one process, which keep the order of each queue."""

    keeps_order = True

    def __init__(self, store: MessageStore, handler: Handler, member: Member, config: ConsumerConfig) -> None:
        super().__init__(store, handler, member, config)
        self._suspension = Suspension(handler, config, self.retries)

    def _serve(self, calls: Calls) -> None:
        with self._invoking(self._call) as call:
            while (taken := self._take()) is not None:
                self._handle(calls, call, *taken)

    def _batch(self, queue: ProcessQueue) -> list[ReceivedMessage]:
        if queue.is_blocked:
            return []
        size, linger_s = self._handler.batch_size, self._handler.linger_s
        batch = queue.resume() or (queue.take() if size == 1 else queue.gather(size, linger_s))
        queue.claimed = bool(batch)
        return batch

    def _handle(
        self, calls: Calls, call: Callable[[Any], object], queue: ProcessQueue, batch: list[ReceivedMessage]
    ) -> None:
        self._count_running(queue, 1)
        calls.running = 1
        done = 0
        for messages in [batch] if self._handler.batch is not None else [[message] for message in batch]:
            if self._stopping or queue.revoked or not self._begin(queue, messages[0]):
                break
            calls.begun += 1
            pause_s = self._pause_after(call, messages)
            if pause_s:
                queue.suspend([message.again() for message in messages] + batch[done + len(messages) :], pause_s)
                break
            if not self._acknowledge_all(queue, messages):
                self._refused(queue)
                break
            done += len(messages)
        calls.running = 0
        self._count_running(queue, -1)
        queue.settle(batch[:done])
        with self._counting:
            self.handled += done
        queue.claimed = False
        if len(self._calls) > 1:
            self.wake()

    def _begin(self, queue: ProcessQueue, message: ReceivedMessage) -> bool:
        """Count the attempt. False when the queue has gone to somebody else, or everything is to stop."""
        while not (self._stopping or queue.revoked):
            try:
                if queue.grant.begin(message):
                    return True
                queue.revoked = True
            except StoreBusy as error:
                _log.warning("beginning message %d of %s: %s", message.queue_offset, queue.queue, error)
        return False

    def _pause_after(self, call: Callable[[Any], object], messages: list[ReceivedMessage]) -> float:
        """Run the handler; return 0 when the messages are done with, else after how many seconds they come again."""
        pause_s = self._suspension.before(messages)
        if pause_s is not None:
            return pause_s
        try:
            for message in messages:
                message.check_opened()
            call(messages if self._handler.batch is not None else messages[0])
        except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler is a failure of this message, too
            with self._counting:
                self.failed += len(messages)
            return self._suspension.after(messages, error)
        return 0
