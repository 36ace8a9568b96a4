"""Acknowledging: how the threads of a handler report that messages are finished, and learn that a queue was lost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

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

    def acknowledge(self, queue: ProcessQueue, message: ReceivedMessage) -> bool:
        """Acknowledge one message. False when the queue has gone to another member."""
        while True:
            try:
                return queue.grant.acknowledge(message)
            except StoreBusy as error:
                _log.warning("acknowledging message %d of %s: %s", message.queue_offset, queue.queue, error)
                if self._turns.stopping or queue.revoked:
                    return False

    def acknowledge_all(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> bool:
        """Acknowledge the messages of one call under one lock. False when the queue has gone to another member."""
        if len(messages) == 1:
            return self.acknowledge(queue, messages[0])
        return self._finish_all(queue, messages, queue.grant.acknowledge_offsets)

    def give_back(self, queue: ProcessQueue, messages: list[ReceivedMessage], *, dead_lettered: bool) -> bool:
        """Acknowledge messages that are stored for their next attempt, or as dead letters; as the others."""
        give_back = functools.partial(queue.grant.give_back, dead_lettered=dead_lettered)
        return self._finish_all(queue, messages, give_back)

    def _finish_all(
        self, queue: ProcessQueue, messages: list[ReceivedMessage], finish: Callable[[list[int]], bool]
    ) -> bool:
        while True:
            try:
                return finish(queue.grant.finish(messages))
            except StoreBusy as error:
                _log.warning("acknowledging %d messages of %s: %s", len(messages), queue.queue, error)
                if self._turns.stopping or queue.revoked:
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
