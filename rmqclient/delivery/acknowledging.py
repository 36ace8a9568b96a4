"""Acknowledging: how the threads of a handler report that messages are finished, and learn that a queue was lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqclient.backend.group_protocols import Grant, RunningSlot, left_to
from rmqclient.delivery.calls import Counters
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.delivery.turns import Turns
from rmqclient.message import ReceivedMessage
from rmqclient.store.errors import StoreBusy
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class Acknowledger:
    """Acknowledges for the threads of one handler; safe for threads.

    Its methods wait however long somebody holds the mutex of the queue, because a handler that has finished a message
    must not run again for it. They stop waiting when the consumer stops or the queue is revoked.
    """

    def __init__(self, group: str, turns: Turns[Any], counters: Counters) -> None:
        self._group = group
        self._turns = turns
        self._counters = counters

    def acknowledge(self, queue: ProcessQueue, message: ReceivedMessage, running: RunningSlot | None = None) -> bool:
        """Acknowledge one message. False when the queue has gone to another member, which did not leave it to us.

        ``running`` is the slot of the call that has ended; None for a message that was not begun.
        """
        return self._finish(queue, [message], lambda grant: grant.acknowledge(message), running)

    def acknowledge_all(
        self, queue: ProcessQueue, messages: list[ReceivedMessage], running: RunningSlot | None = None
    ) -> bool:
        """Acknowledge the messages of one call under one lock, as :meth:`acknowledge`."""
        if len(messages) == 1:
            return self.acknowledge(queue, messages[0], running)
        return self._finish(queue, messages, lambda grant: grant.acknowledge_offsets(grant.finish(messages)), running)

    def give_back(
        self,
        queue: ProcessQueue,
        messages: list[ReceivedMessage],
        running: RunningSlot | None = None,
        *,
        dead_lettered: bool,
    ) -> bool:
        """Acknowledge messages that are stored for their next attempt, or as dead letters; as the others."""

        def finish(grant: Grant) -> bool:
            return grant.give_back(grant.finish(messages), dead_lettered=dead_lettered)

        return self._finish(queue, messages, finish, running)

    def _finish(
        self,
        queue: ProcessQueue,
        messages: list[ReceivedMessage],
        finish: Callable[[Grant], bool],
        running: RunningSlot | None,
    ) -> bool:
        """Finish by the grant of the queue, else by what is left to the call, until the mutex of the queue is free."""
        while True:
            try:
                if finish(queue.grant):
                    return True
                left = None if running is None else left_to(running, queue.grant)
                return left is not None and finish(left)
            except StoreBusy as error:
                first, last = messages[0].queue_offset, messages[-1].queue_offset
                _log.warning("acknowledging message %d to %d of %s: %s", first, last, queue.queue, error)
                if self._turns.stopping or (running is None and queue.revoked and queue.grant.valid):
                    return False

    def refused(self, queue: ProcessQueue) -> None:
        """Count an acknowledgement that was refused; take nothing more from the queue."""
        if not queue.revoked:
            queue.revoked = True
            _log.warning(
                "group %s lost queue %d of %s while a message was handled: it will be delivered again elsewhere",
                self._group, queue.queue.queue_id, queue.queue.topic,
            )  # fmt: skip
        self._counters.add(refused=1)
