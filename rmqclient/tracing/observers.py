"""Observers: what producers and consumers tell of their messages, and the observer of this process.

An observer sees each send with the messages of it, each call of a handler with the messages of that, and each pull that
brought some. A producer or a consumer asks for its observers once, when it is made. Without one, its sends, calls and
pulls are the plain ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rmqclient.backend.around import Outgoing
from rmqclient.backend.backend import Backend
from rmqclient.message import Message, ReceivedMessage, SendResult

if TYPE_CHECKING:
    from rmqclient.handler import Handler  # producers have observers, and no handlers


class Sending(Protocol):
    """One send that is under way."""

    @property
    def messages(self) -> Sequence[Message]:
        """What to send: the messages that were given, or copies that say more."""

    def end(self, results: Sequence[SendResult]) -> None:
        """See where the messages stand; empty for messages in a buffer. Called once, unless :meth:`fail` is."""

    def fail(self, error: BaseException) -> None:
        """See why the messages were not sent."""


class Observer(Protocol):
    """Is told what one producer or consumer does; safe for threads. Raises nothing."""

    def send(self, outgoing: Outgoing) -> Sending:
        """Begin to watch a send."""

    def receive(self, group: str, messages: Sequence[ReceivedMessage], begun_ns: int) -> None:
        """See messages that a program has pulled for a group, by a read that began at a time, in ns since 1970."""

    def process(self, handler: Handler, messages: Sequence[ReceivedMessage]) -> AbstractContextManager[object]:
        """Return what to run a call of a handler in. It sees what the handler raises, and lets it pass."""

    def decide(self, half: SendResult | ReceivedMessage, group: str, *, commit: bool) -> None:
        """See that a transaction was decided by its producer: here, or, for a received message, after a check."""

    def close(self) -> None:
        """Hand over what was collected, and return within seconds. Closing twice does nothing."""


Make: TypeAlias = Callable[[str], Observer]
"""Makes an observer; gets what tells its topics from those of other places, empty for a table of a database."""

_installed: list[Make] = []


def install(make: Make | None) -> None:
    """Set what makes the observer of every producer and consumer of this process from now on; None for no observer."""
    _installed[:] = [] if make is None else [make]


def observers_of(backend: Backend) -> list[Observer]:
    """Return the observers of a new producer or consumer of a backend."""
    return [make(backend.namespace) for make in _installed]


def observers_of_table() -> list[Observer]:
    """Return the observers of what is written into an outbox."""
    return [make("") for make in _installed]
