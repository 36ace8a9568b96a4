"""Promotion: what a replica has, what it lacks, and making it a primary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqclient.errors import StoreUnusable
from rmqclient.replication.status import read_seen
from rmqclient.store import clock, open_store
from rmqclient.store.files.file_lock import FOLLOWER_BYTE
from rmqclient.store.recovery import replica
from rmqclient.store.settings.replica_mark import ReplicaMark, read_mark

_ALIVE_MS: Final = 10_000
"""A primary that was heard so lately is alive: two primaries would be the result."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """How a replica stands. Bytes and times are those that the follower saw last, by the clock of this host."""

    primary: str
    broker: str
    is_followed: bool
    """Whether a process follows the primary now."""
    end: int
    """The end of the log here, exclusive."""
    primary_end: int
    """Where the log of the primary ended when it was heard last, at least."""
    missing_bytes: int
    silent_s: float | None
    """Seconds since the primary was heard last; None when it never was."""
    problem: str
    """Why the replica does not follow; empty when it does."""


def status(root: Path) -> ReplicaStatus:
    """Return how a replica stands. Raises StoreUnusable for a store that is none, and as opening one."""
    with open_store(root, create=False, housekeeping=False) as store:
        mark, seen, end = _mark(root), read_seen(root), store.state.published_to
        is_followed = store.lock.holder(FOLLOWER_BYTE) is not None
    return ReplicaStatus(
        mark.primary,
        mark.broker,
        is_followed,
        end,
        max(seen.primary_end, end),
        max(0, seen.primary_end - end),
        max(0, clock.wall_ms() - seen.contact_ms) / 1000 if seen.contact_ms else None,
        seen.problem,
    )


def promote(root: Path, *, force: bool = False) -> ReplicaStatus:
    """Make a replica a primary, for good; return how it stood. The follower must have ended.

    Without ``force`` a replica is not promoted while its primary was heard in the last 10 s, nor when bytes of it are
    missing or none were ever received. Raises StoreUnusable then, and StoreInUse while a process has the store open.
    """
    found = status(root)
    refusal = _refusal(found)
    if refusal and not force:
        raise StoreUnusable(f"{root} was not promoted: {refusal}. Nothing was changed; --force does it all the same")
    replica.promote(root)
    return found


def _refusal(found: ReplicaStatus) -> str:
    if found.silent_s is None:
        return f"its primary {found.primary} was never heard"
    if found.silent_s * 1000 < _ALIVE_MS:
        return f"its primary {found.primary} was heard {found.silent_s:.1f} s ago, and two primaries would go two ways"
    if found.missing_bytes:
        return f"the last {found.missing_bytes} bytes of its primary are not here"
    return ""


def _mark(root: Path) -> ReplicaMark:
    mark = read_mark(root)
    if mark is None:
        raise StoreUnusable(f"{root} is no replica")
    return mark
