"""Undecided transactions: listing them, and deciding one by hand."""

from __future__ import annotations

from rmqclient.backend import Backend
from rmqclient.backend.transactions import OpenTransaction
from rmqclient.opening import open_backend
from rmqclient.store import MessageStore

__all__ = ["OpenTransaction", "decide", "select"]


def select(
    place: MessageStore | Backend, *, group: str | None = None, topic: str | None = None, message_id: str | None = None
) -> list[OpenTransaction]:
    """Return the undecided transactions: first those that were given up, then the others, each the oldest first."""
    return [
        each
        for each in open_backend(place).open_transactions.all()
        if group in (None, each.group)
        and topic in (None, each.queue.topic)
        and message_id in (None, each.message.message_id)
    ]


def decide(
    place: MessageStore | Backend, transaction: OpenTransaction, *, commit: bool, author: str | None = None
) -> None:
    """Commit one or roll it back, as its producer would.

    A mark of a store says that ``author`` did it, None for the user of this process.

    Raises TransactionDecided if it was decided meanwhile, MessageExpired if its half message was removed, and as a
    send. Raises NotOnCluster for one that a broker gave up.
    """
    backend = open_backend(place)
    backend.open_transactions.decide(transaction, commit=commit)
    if backend.store is not None:
        words = f"{transaction.message.message_id} for {transaction.queue.topic}"
        backend.store.marks.write("commit" if commit else "rollback", transaction.group, words, author=author)
