"""Replica mark: ``<root>/replica.json``, which says why a store takes no message of its own.

While the file is there the store takes no message, topic or offset but those of its primary, whichever process asks and
however often the store is opened. A word in the shared memory says so to every append.

=============  ====================================================================  ===================================
kind           the store                                                             it ends by
=============  ====================================================================  ===================================
``follower``   follows another one, its primary                                      a promotion
``unsettled``  is a primary that lost power, and its replica may have more than it   its replica, which hands that back,
                                                                                     or a promotion
``fenced``     was a primary, and knows that another one took its place              ``rmq replica rejoin``
=============  ====================================================================  ===================================

A mark is made and removed while no process has the store open, but for the fence: that comes while the store is used.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from rmqclient.store.errors import ReadOnlyReplica, StoreCorrupt, StoreFenced, StoreUnsettled, store_errors
from rmqclient.store.files.mapped_file import sync_directory
from rmqclient.store.settings import document

REPLICA_FILE = Path("replica.json")


class Kind(StrEnum):
    """Why a store takes nothing."""

    FOLLOWER = "follower"
    UNSETTLED = "unsettled"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class ReplicaMark:
    """Whom a store follows, or who took its place."""

    primary: str
    """``HOST:PORT`` where the primary sends its log; where the new primary called from, of a fenced store."""

    broker: str
    """``HOST:PORT`` where it answers requests: topics, groups, offsets."""

    since_ms: int
    """When it came to be so, ms since 1970."""

    kind: Kind = Kind.FOLLOWER

    epoch: int = 0
    """Of a fenced store, and of one that rejoined: the epoch of the new primary, at least."""

    cut_to: int = -1
    """Where the log is cut before anything else is done with it; -1 for nowhere."""


def read_mark(root: Path) -> ReplicaMark | None:
    """Return why a store takes nothing; None when it is a primary. Raises StoreCorrupt for a damaged file."""
    path = root / REPLICA_FILE
    found = document.read(path)
    if found is None:
        return None
    try:
        mark = ReplicaMark(**{**found, "kind": Kind(found.get("kind", Kind.FOLLOWER))})
        texts, numbers = (mark.primary, mark.broker), (mark.since_ms, mark.epoch, mark.cut_to)
        if all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in numbers):
            return mark
    except (TypeError, ValueError):
        pass
    raise StoreCorrupt(path, 0, f"does not say whom this store follows: {found!r}")


def write_mark(root: Path, mark: ReplicaMark) -> None:
    """Let a store take nothing of its own, for good. Only while no process has it open, or for a fence.

    Raises StoreFull.
    """
    document.write(root / REPLICA_FILE, document.render(asdict(mark)))


def remove_mark(root: Path) -> None:
    """Make a store its own again, for good. Only while no process has it open."""
    path = root / REPLICA_FILE
    with store_errors(f"{path} cannot be removed"):
        path.with_name(f"{path.name}.bak").unlink(missing_ok=True)  # first: it would be read in place of the file
        path.unlink(missing_ok=True)
        sync_directory(root)


def check_primary(root: Path, *, is_replica: bool) -> None:
    """Raise ReadOnlyReplica, with the address of the primary, for a store that takes nothing of its own.

    A fenced one raises StoreFenced, and one that waits for its replica StoreUnsettled.
    """
    if not is_replica:
        return
    mark = read_mark(root)
    if mark is not None and mark.kind is Kind.FENCED:
        raise StoreFenced(
            f"{root} is no longer a primary: {mark.primary} has epoch {mark.epoch}. Nothing was changed. Send and "
            "consume there; `rmq replica rejoin` makes this store its replica"
        )
    if mark is not None and mark.kind is Kind.UNSETTLED:
        raise unsettled(root)
    whom = "another store" if mark is None else f"{mark.primary} (its broker is {mark.broker})"
    raise ReadOnlyReplica(
        f"{root} is a replica and follows {whom}: nothing was changed. Send and consume there; this store can be "
        "read, and `rmq replica promote` makes it a primary"
    )


def unsettled(root: Path) -> StoreUnsettled:
    """Return what is raised for a primary that has lost power and has not heard its replica."""
    return StoreUnsettled(
        f"{root} was not closed in order before the last start of this host, and its replica may have messages that "
        "were lost here: nothing was changed. `rmq serve --ha-listen` takes them back from the replica and goes on; "
        "`rmq replica promote --force` goes on without them"
    )
