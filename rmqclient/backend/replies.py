"""Replies: how the reply to a request travels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rmqclient.backend.bells import Bell
from rmqclient.message import Message, ReceivedMessage


class Replies(Protocol):
    """The replies to the requests of one client. Except for :meth:`open`, for one thread at a time."""

    client_id: str
    """The name that a request gives to be replied to [REPLY_TO_CLIENT]."""

    @property
    def bell(self) -> Bell:
        """Rings when a reply may have come, once :meth:`open` was called."""

    def open(self) -> Mapping[str, str]:
        """Be ready for replies; return what a request must say so that they come here. Safe for threads."""

    def skip(self) -> None:
        """Leave out the replies that have come until now: no request is waiting for them. Safe for threads."""

    def take(self) -> Sequence[ReceivedMessage]:
        """Return replies that have come; none when all were returned."""

    def listen(self) -> None:
        """Let the next reply ring :attr:`bell`. A reply that came before is found by :meth:`take`."""

    def close(self) -> None:
        """Take no more replies. Closing twice does nothing."""


class ReplySender(Protocol):
    """Sends replies; safe for threads."""

    waits: bool
    """Whether a send waits for others, such as a broker, so that a loop must not run it."""

    def send(self, reply: Message, client_id: str, request: ReceivedMessage) -> None:
        """Send the reply to a request of the client with this id. Raises as a send."""
