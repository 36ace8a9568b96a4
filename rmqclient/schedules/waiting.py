"""Waiting messages: listing the messages that have a delay or a time, and cancelling one by hand."""

from __future__ import annotations

from collections.abc import Iterator

from rmqclient.names import COMMAND_GROUP
from rmqclient.sending.producer import Producer
from rmqclient.store import MessageStore
from rmqclient.store.waiting.timer import Pending

__all__ = ["Pending", "cancel", "select"]


def select(store: MessageStore, *, topic: str | None = None) -> Iterator[Pending]:
    """Yield the messages that wait now for a delay or a time, in the order of their due times.

    ``topic`` selects the messages for one topic. Messages with a delay level are left out: RocketMQ cannot cancel them.
    """
    return (each for each in store.timer.pending() if topic in (None, each.topic))


def cancel(store: MessageStore, message_id: str, *, author: str | None = None) -> bool:
    """Cancel a message, so that it is never delivered. False if it was delivered or cancelled, or never waited.

    A mark says that ``author`` did it, None for the user of this process. Raises what a send raises.
    """
    with Producer(store, group=COMMAND_GROUP) as producer:
        is_cancelled = producer.cancel(message_id)
    if is_cancelled:
        store.marks.write("cancel", message_id, "before its time came", author=author)
    return is_cancelled
