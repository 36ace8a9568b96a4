"""Waiting messages: listing the messages that have a delay or a time, and cancelling one by hand."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from rmqclient.duration import duration_in
from rmqclient.message import ReceivedMessage
from rmqclient.names import COMMAND_GROUP, RETRY_PREFIX
from rmqclient.opening import open_backend
from rmqclient.sending.producer import Producer
from rmqclient.steps.journal import PAUSED, WAITS_FOR
from rmqclient.store import DELAYS, SCHEDULE_TOPIC, MessageQueue, MessageStore
from rmqclient.store.errors import MessageExpired, StoreCorrupt
from rmqclient.store.waiting.timer import Pending

__all__ = ["Key", "Pending", "Wait", "cancel", "in_order", "select"]


class Key(NamedTuple):
    """Where a wait stands among all, in the order of their ends."""

    due_ms: int
    level: int
    """The delay level, from 1 on; 0 for the timer."""
    number: int
    """Queue offset of the waiting record."""


class Wait(NamedTuple):
    """A message that waits, in the timer or in a delay level."""

    key: Key
    message: ReceivedMessage
    """The waiting record."""
    topic: str
    """The topic that it is for; that of the group's retries if it waits for another attempt."""

    @property
    def kind(self) -> str:
        """``delayed``, ``retry`` if it failed before, or ``sleep`` if a durable step of it sleeps or waits."""
        if not self.topic.startswith(RETRY_PREFIX):
            return "delayed"
        return "sleep" if PAUSED in self.message.properties else "retry"

    @property
    def signal(self) -> str:
        """The signal that a durable step of it waits for; empty if none does."""
        return self.message.properties.get(WAITS_FOR, "") if self.kind == "sleep" else ""

    @property
    def group(self) -> str:
        """The group that gets it again; empty if it is delayed."""
        return self.topic.removeprefix(RETRY_PREFIX) if self.kind != "delayed" else ""

    @property
    def can_be_cancelled(self) -> bool:
        """Whether :func:`cancel` would; what waits in a delay level, or failed before, is delivered."""
        return self.key.level == 0 and self.kind == "delayed"


def select(store: MessageStore, *, topic: str | None = None) -> Iterator[Pending]:
    """Yield the messages that wait now for a delay or a time, in the order of their due times.

    ``topic`` selects the messages for one topic. Messages with a delay level are left out: RocketMQ cannot cancel them.
    """
    return (each for each in store.timer.pending() if topic in (None, each.topic))


def in_order(store: MessageStore, *, after: Key | None = None) -> Iterator[Wait]:
    """Yield all that wait, those with a delay level, too, the next one first; ``after`` goes on behind one."""
    levels = [_in_level(store, level) for level in range(1, len(DELAYS) + 1)]
    return (each for each in heapq.merge(_in_timer(store), *levels) if after is None or each.key > after)


def cancel(store: MessageStore, message_id: str, *, author: str | None = None) -> bool:
    """Cancel a message, so that it is never delivered. False if it was delivered or cancelled, or never waited.

    A mark says that ``author`` did it, None for the user of this process. Raises what a send raises.
    """
    with Producer(store, group=COMMAND_GROUP) as producer:
        is_cancelled = producer.cancel(message_id)
    if is_cancelled:
        store.marks.write("cancel", message_id, "before its time came", author=author)
    return is_cancelled


def _in_timer(store: MessageStore) -> Iterator[Wait]:
    for each in store.timer.pending():
        message = store.timer.message(each.queue_offset)
        if message is not None:
            yield Wait(Key(each.due_ms, 0, each.queue_offset), message, each.topic)


def _in_level(store: MessageStore, level: int) -> Iterator[Wait]:
    backend, queue = open_backend(store), MessageQueue(SCHEDULE_TOPIC, level - 1)
    if SCHEDULE_TOPIC not in backend.topics.names() or queue not in backend.topics.queues(SCHEDULE_TOPIC):
        return
    delay_ms = round(duration_in(DELAYS[level - 1]) * 1000)
    low, high = backend.queues.span(queue)
    for number in range(max(low, store.schedule.next_offset(level)), high):
        try:
            message = backend.queues.message_at(queue, number)
        except (MessageExpired, StoreCorrupt):
            continue
        yield Wait(
            Key(message.store_timestamp + delay_ms, level, number), message, message.properties.get("REAL_TOPIC", "")
        )
