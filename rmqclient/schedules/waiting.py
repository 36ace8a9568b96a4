"""What waits for its time: listing it, and taking it back by hand."""

from __future__ import annotations

from collections.abc import Iterator

from rmqclient.sending.producer import Producer
from rmqclient.store import MessageStore
from rmqclient.store.waiting.timer import Pending

__all__ = ["Pending", "cancel", "select"]


def select(store: MessageStore, *, topic: str | None = None) -> Iterator[Pending]:
    """Yield the messages with a delay or a time that wait now, the next one first; ``topic`` is what they are for.

    Those of delay levels are not among them: RocketMQ has no way to take one back.
    """
    return (each for each in store.timer.pending() if topic in (None, each.topic))


def cancel(store: MessageStore, message_id: str) -> bool:
    """Take a message back: nobody gets it. False when it does not wait any more, or never did.

    Raises what a send raises.
    """
    with Producer(store, group="rmq-cli") as producer:
        return producer.cancel(message_id)
