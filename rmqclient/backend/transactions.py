"""Transactions: the interface of transaction producers to a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from rmqclient.message import MessageQueue, ReceivedMessage, SendResult

Ask: TypeAlias = Callable[[ReceivedMessage], bool | None]
"""Decides about a half message: True commits it, False rolls it back, None means not known yet."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An undecided transaction."""

    message: ReceivedMessage
    """Its stored half message."""
    queue: MessageQueue
    """The queue that gets the message if the transaction is committed."""
    group: str
    """The producer group."""
    checks: int
    """Number of checks so far."""
    given_up: bool
    """Whether there are no more checks."""


class OpenTransactions(Protocol):
    """The undecided transactions of a backend."""

    def all(self) -> Iterator[OpenTransaction]:
        """Yield them: first those that were given up, then the others, each the oldest first."""

    def decide(self, transaction: OpenTransaction, *, commit: bool) -> None:
        """Commit a transaction or roll it back, as its producer would.

        Raises TransactionDecided if it was decided meanwhile, MessageExpired if its half message was removed,
        NotOnCluster for one that a broker gave up, and as a send.
        """


class Transactions(Protocol):
    """The transactions of one producer group. Safe for threads."""

    def check_usable(self) -> None:
        """Raise StoreClosed if this can no longer be used."""

    def decide(self, half: SendResult, *, commit: bool) -> SendResult | None:
        """Commit a half message or roll it back.

        Returns the committed message's offsets; None after a rollback, and if the backend does not return them. Raises
        TransactionDecided, MessageExpired, and as a send.
        """

    def answer(self, ask: Ask) -> None:
        """From now on, call ``ask`` on a thread of its own for undecided half messages of the group, one by one.

        A call of more than ten seconds hangs: the next ones run beside it, on up to eight threads.
        """

    def close(self) -> None:
        """Stop the checks; wait up to ten seconds for running calls of ``ask``. Closing twice does nothing."""
