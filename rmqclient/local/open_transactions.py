"""Open transactions of a store of this host: lists them, and decides one by hand."""

from __future__ import annotations

from collections.abc import Iterator

from rmqclient.backend.transactions import OpenTransaction
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageStore
from rmqclient.store.errors import MessageExpired
from rmqclient.store.waiting.half_messages import checks_of, group_of
from rmqclient.store.waiting.real_queue import real_queue


def open_transactions(store: MessageStore) -> Iterator[OpenTransaction]:
    """Yield the undecided transactions: first those that the store gave up, then the others, each the oldest first."""
    for given_up, messages in ((True, store.transactions.given_up()), (False, store.transactions.pending())):
        for message in messages:
            queue = real_queue(message)
            if queue is not None:
                yield OpenTransaction(message, queue, group_of(message), checks_of(message), given_up=given_up)


def decide(store: MessageStore, transaction: OpenTransaction, *, commit: bool) -> None:
    """Commit one or roll it back, as its producer would.

    Raises TransactionDecided if it was decided meanwhile, MessageExpired if its half message was removed, and as a
    send.
    """
    half: ReceivedMessage | None = transaction.message
    if transaction.given_up:
        half = store.transactions.half_of(transaction.message)
    if half is None:
        raise MessageExpired(f"the half message of {transaction.message.message_id} was removed: send it again by hand")
    result = store.transactions.decide(half, commit=commit)
    store.flusher.wait_until_flushed(result.commit_log_end)
