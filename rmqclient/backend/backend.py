"""Backend: a store or a cluster, as its parts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from rmqclient.backend.group_protocols import Groups
from rmqclient.backend.limits import Limits
from rmqclient.backend.protocols import Messages, Producers, Queues, StepStore, Topics
from rmqclient.backend.transactions import OpenTransactions
from rmqclient.place import shown
from rmqclient.store import MessageStore


def leave_open() -> None:
    """Do nothing: the backend is closed by the user that opened it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Backend:
    """A store or a cluster, as one user has it.

    After it is closed, and in a forked child, the methods of its parts raise StoreClosed.
    """

    root: Path | str
    """The user's argument: the directory, or the URL of a cluster."""
    namespace: str
    """Name that distinguishes its topics in traces from topics of the same name elsewhere; may be empty."""
    directory: Path
    """Directory of this host for other data than messages; it need not exist."""
    limits: Limits
    topics: Topics
    queues: Queues
    messages: Messages
    groups: Groups
    producers: Producers
    open_transactions: OpenTransactions
    steps: StepStore | None = None
    """What keeps the results of durable steps; None if it has no place for them."""
    store: MessageStore | None = None
    """The store, for a user that needs its files; None if they are not on this host."""
    alone: Callable[[str, float], AbstractContextManager[None]]
    """Hold a named mutex between all processes until the block ends, after at most so many seconds. Raises StoreBusy.

    Names may share a lock, so one name may have to wait for another.
    """
    check_usable: Callable[[], None]
    """Raise StoreClosed after it is closed, and in a forked child."""
    close: Callable[[], None] = leave_open
    """Leave, and close it if this user opened it. Closing twice does nothing. Raises as the store's ``close``."""

    def __repr__(self) -> str:
        return f"Backend({shown(self.root)!r})"
