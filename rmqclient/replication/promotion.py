"""Promotion: makes a replica a primary, and reports what it has and lacks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rmqclient.errors import StoreInUse, StoreUnusable
from rmqclient.replication.handshake import PRIMARY
from rmqclient.replication.returning.fencing import forget_replaced, note_replaced, replaced, tell_once
from rmqclient.replication.status import Seen, seen_of
from rmqclient.store import clock, open_store
from rmqclient.store.files.file_lock import FOLLOWER_BYTE
from rmqclient.store.recovery import replica
from rmqclient.store.settings.lineage import read_lineage
from rmqclient.store.settings.replica_mark import Kind, read_mark

_ALIVE_MS: Final = 10_000
"""Milliseconds since its last contact within which a primary counts as alive; a promotion would make two."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The state of a store. Offsets and times are the follower's last observations, by the clock of this host."""

    role: str
    """``primary``, ``follower``, ``unsettled`` or ``fenced``."""
    epoch: int
    """The newest epoch of the store; 0 without epochs."""
    primary: str
    """The primary that it follows, or that fenced it; empty for a primary."""
    broker: str
    is_followed: bool
    """Whether a process follows the primary now."""
    end: int
    """The end of the log here, exclusive."""
    primary_end: int
    """The end of the primary's log at the last contact, at least."""
    missing_bytes: int
    silent_s: float | None
    """Seconds since the last contact with the primary; None if there was no contact."""
    behind_s: float | None
    """Seconds since the replica last had all of the primary's log; None if it never had."""
    problem: str
    """The reason for which the replica does not follow; empty if it does."""
    untold: str
    """The old primary, if it has not been told yet that this store replaced it; else empty."""
    store_id: str
    """The id of the log's history; empty for a store that never had a replica of this library."""


def status(root: Path) -> ReplicaStatus:
    """Return the state of a store. Raises StoreUnusable for a directory without a store, and as opening one."""
    with open_store(root, create=False, housekeeping=False, settling=True) as store:
        mark, lineage, end = read_mark(root), read_lineage(root), store.state.published_to
        is_followed = store.lock.holder(FOLLOWER_BYTE) is not None
    seen = seen_of(root, mark.primary) if mark is not None and mark.kind is Kind.FOLLOWER else Seen()
    return ReplicaStatus(
        role=PRIMARY if mark is None else mark.kind.value,
        epoch=max(lineage.newest, mark.epoch if mark else 0),
        primary=mark.primary if mark else "",
        broker=mark.broker if mark else "",
        is_followed=is_followed,
        end=end,
        primary_end=max(seen.primary_end, end),
        missing_bytes=max(0, seen.primary_end - end),
        silent_s=_since(seen.contact_ms),
        behind_s=_since(seen.level_ms),
        problem=seen.problem,
        untold=replaced(root) if mark is None else "",
        store_id=lineage.store_id,
    )


def _since(time_ms: int) -> float | None:
    return max(0, clock.wall_ms() - time_ms) / 1000 if time_ms else None


def promotable(root: Path, *, force: bool = False) -> ReplicaStatus:
    """Return the state of a store that may be promoted; changes nothing.

    Raises StoreUnusable for a primary. Without ``force`` also for a replica that heard its primary in the last 10 s,
    lacks bytes of it or never received any, for a primary that waits for its replica, and for one that was replaced.
    """
    found = status(root)
    if found.role == PRIMARY:
        raise StoreUnusable(f"{root} is not a replica: nothing was changed")
    refusal = _refusal(found)
    if refusal and not force:
        raise StoreUnusable(f"{root} was not promoted: {refusal}. Nothing was changed; --force does it all the same")
    return found


def promote(root: Path, *, force: bool = False) -> ReplicaStatus:
    """Make a replica, or another store that takes no messages, a primary, and tell the old one; return its old state.

    ``untold`` is the old primary if it could not be told. The follower must have ended. Raises as :func:`promotable`,
    and StoreInUse while a process has the store open.
    """
    found = promotable(root, force=force)
    if found.role == Kind.FOLLOWER:
        note_replaced(root, found.primary)
    try:
        replica.promote(root)
    except StoreInUse:
        forget_replaced(root)
        raise
    with open_store(root, create=False, housekeeping=False) as store:
        tell_once(store)
    return replace(found, untold=replaced(root))


def _refusal(found: ReplicaStatus) -> str:
    if found.role == Kind.UNSETTLED:
        return "it has lost power, and its replica was not asked yet for what it may have lost"
    if found.role == Kind.FENCED:
        return f"{found.primary} has epoch {found.epoch} and took its place, and two primaries would go two ways"
    if found.silent_s is None:
        return f"its primary {found.primary} was never heard"
    if found.silent_s * 1000 < _ALIVE_MS:
        return f"its primary {found.primary} was heard {found.silent_s:.1f} s ago, and two primaries would go two ways"
    if found.missing_bytes:
        return f"the last {found.missing_bytes} bytes of its primary are not here"
    return ""
