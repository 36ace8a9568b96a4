"""Transactions that nobody has decided: listing them, and deciding one by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.errors import MessageExpired
from rmqclient.store.waiting.half_messages import checks_of, group_of
from rmqclient.store.waiting.real_queue import real_queue


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """One transaction without an end."""

    message: ReceivedMessage
    queue: MessageQueue
    """Where it goes when it is committed."""
    group: str
    """Of the producers who can be asked."""
    checks: int
    """How often they were."""
    given_up: bool
    """Whether nobody will be asked any more."""


def select(
    store: MessageStore, *, group: str | None = None, topic: str | None = None, message_id: str | None = None
) -> list[OpenTransaction]:
    """Return the transactions that are neither committed nor rolled back: those given up first, the oldest first."""
    return [
        each
        for each in _all(store)
        if group in (None, each.group)
        and topic in (None, each.queue.topic)
        and message_id in (None, each.message.message_id)
    ]


def decide(store: MessageStore, transaction: OpenTransaction, *, commit: bool) -> None:
    """Commit one or roll it back, as its producer would.

    Raises TransactionDecided when somebody was quicker, MessageExpired when its half message was removed, and what a
    send raises.
    """
    half: ReceivedMessage | None = transaction.message
    if transaction.given_up:
        half = store.transactions.half_of(transaction.message)
    if half is None:
        raise MessageExpired(f"the half message of {transaction.message.message_id} was removed: send it again by hand")
    result = store.transactions.decide(half, commit=commit)
    store.flusher.wait_until_flushed(result.commit_log_end)


def _all(store: MessageStore) -> Iterator[OpenTransaction]:
    for given_up, messages in ((True, store.transactions.given_up()), (False, store.transactions.pending())):
        for message in messages:
            queue = real_queue(message)
            if queue is not None:
                yield OpenTransaction(message, queue, group_of(message), checks_of(message), given_up=given_up)
