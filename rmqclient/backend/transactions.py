"""Transactions: what a transaction producer asks of a backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from rmqclient.message import MessageQueue, ReceivedMessage, SendResult

Ask: TypeAlias = Callable[[ReceivedMessage], bool | None]
"""Says of an undecided half message whether it is committed (True) or rolled back (False); None if it is not known."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """One transaction that was neither committed nor rolled back."""

    message: ReceivedMessage
    """Its half message, as it is stored."""
    queue: MessageQueue
    """The queue that gets the message if the transaction is committed."""
    group: str
    """The group whose producers are asked."""
    checks: int
    """How often the producers were asked."""
    given_up: bool
    """Whether nobody asks any more."""


class Transactions(Protocol):
    """The transactions of one producer group; safe for threads."""

    def check_usable(self) -> None:
        """Raise StoreClosed when nothing can be decided any more."""

    def decide(self, half: SendResult, *, commit: bool) -> SendResult | None:
        """Commit a half message or roll it back.

        Returns where the committed message stands; None after a rollback, and where the backend does not say it. Raises
        TransactionDecided, MessageExpired, and what a send raises.
        """

    def answer(self, ask: Ask, client_id: str | None) -> None:
        """From now on, call ``ask`` in a thread of its own for undecided half messages of the group.

        ``client_id`` names this member of the group; None makes a name.
        """

    def close(self) -> None:
        """End the questions; returns when no call of ``ask`` runs. Closing twice does nothing."""
