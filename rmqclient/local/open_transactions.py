"""Open transactions of a store of this host: lists them, and decides one by hand."""

from __future__ import annotations

from collections.abc import Iterator

from rmqclient.backend.transactions import OpenTransaction
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageStore
from rmqclient.store.errors import MessageExpired
from rmqclient.store.waiting.half_messages import checks_of, group_of
from rmqclient.store.waiting.real_queue import real_queue


class LocalOpenTransactions:
    """The :class:`rmqclient.backend.transactions.OpenTransactions` of a store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def all(self) -> Iterator[OpenTransaction]:
        """Yield them: first those that were given up, then the others, each the oldest first."""
        self._store.life.check_usable()
        transactions = self._store.transactions
        for given_up, messages in ((True, transactions.given_up()), (False, transactions.pending())):
            for message in messages:
                queue = real_queue(message)
                if queue is not None:
                    yield OpenTransaction(message, queue, group_of(message), checks_of(message), given_up=given_up)

    def decide(self, transaction: OpenTransaction, *, commit: bool) -> None:
        """Commit one or roll it back, as its producer would."""
        self._store.life.check_usable()
        half: ReceivedMessage | None = transaction.message
        if transaction.given_up:
            half = self._store.transactions.half_of(transaction.message)
        if half is None:
            raise MessageExpired(
                f"the half message of {transaction.message.message_id} was removed: send it again by hand"
            )
        result = self._store.transactions.decide(half, commit=commit)
        self._store.flusher.wait_until_flushed(result.commit_log_end)
