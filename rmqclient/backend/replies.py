"""Replies: protocols for receiving and sending replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from rmqclient.backend.bells import Bell
from rmqclient.message import Message, ReceivedMessage


class Replies(Protocol):
    """The replies to the requests of one client. Except for :meth:`open`, for one thread at a time."""

    client_id: str
    """The address of replies, in each request. [REPLY_TO_CLIENT]"""

    @property
    def bell(self) -> Bell:
        """Rings when a reply may have come, once :meth:`open` was called."""

    def open(self) -> Mapping[str, str]:
        """Get ready for replies; return the properties by which they come here. Safe for threads."""

    def skip(self) -> None:
        """Drop the replies that have come until now, because no request waits for them. Safe for threads."""

    def take(self) -> Sequence[ReceivedMessage]:
        """Return new replies; may be empty."""

    def listen(self) -> None:
        """Let the next reply ring :attr:`bell`. A reply that came before is found by :meth:`take`."""

    def close(self) -> None:
        """Stop taking replies. Closing twice does nothing."""


class Reply(NamedTuple):
    """A reply, and what it answers; each backend uses what it needs."""

    message: Message
    """Its tag is the client id of the requester."""
    request: ReceivedMessage


class ReplySender(Protocol):
    """Sends replies. Safe for threads."""

    waits: bool
    """Whether a send may block, such as for a broker, so that an event loop must not run it."""

    def send(self, reply: Reply) -> None:
        """Send the reply to a request. Raises as a send."""
