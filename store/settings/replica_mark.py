"""Replica mark: ``<root>/replica.json``, which says that the store follows another one, its primary.

While the file is there the store takes no message, topic or offset but those of its primary, whichever process asks and
however often the store is opened. It is made and removed only while no process has the store open, so an open store is
a replica for the whole time, or is none.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from rmqclient.store.errors import ReadOnlyReplica, StoreCorrupt, store_errors
from rmqclient.store.files.mapped_file import sync_directory
from rmqclient.store.settings import document

REPLICA_FILE = Path("replica.json")


@dataclass(frozen=True, slots=True)
class ReplicaMark:
    """Whom a store follows."""

    primary: str
    """``HOST:PORT`` where the primary sends its log."""

    broker: str
    """``HOST:PORT`` where it answers requests: topics, groups, offsets."""

    since_ms: int
    """When the store became a replica, ms since 1970."""


def read_mark(root: Path) -> ReplicaMark | None:
    """Return whom the store follows; None when it is no replica. Raises StoreCorrupt for a damaged file."""
    path = root / REPLICA_FILE
    found = document.read(path)
    if found is None:
        return None
    primary, broker, since_ms = (found.get(name) for name in ReplicaMark.__dataclass_fields__)
    if not (isinstance(primary, str) and isinstance(broker, str) and isinstance(since_ms, int)):
        raise StoreCorrupt(path, 0, f"does not say whom this store follows: {found!r}")
    return ReplicaMark(primary, broker, since_ms)


def write_mark(root: Path, mark: ReplicaMark) -> None:
    """Make a store a replica, for good. Only while no process has it open. Raises StoreFull."""
    document.write(root / REPLICA_FILE, document.render(asdict(mark)))


def remove_mark(root: Path) -> None:
    """Make a store its own again, for good. Only while no process has it open."""
    path = root / REPLICA_FILE
    with store_errors(f"{path} cannot be removed"):
        path.with_name(f"{path.name}.bak").unlink(missing_ok=True)  # first: it would be read in place of the file
        path.unlink(missing_ok=True)
        sync_directory(root)


def check_primary(root: Path, *, is_replica: bool) -> None:
    """Raise ReadOnlyReplica, with the address of the primary, for a store that follows another one."""
    if is_replica:
        mark = read_mark(root)
        whom = "another store" if mark is None else f"{mark.primary} (its broker is {mark.broker})"
        raise ReadOnlyReplica(
            f"{root} is a replica and follows {whom}: nothing was changed. Send and consume there; this store can be "
            "read, and `rmq replica promote` makes it a primary"
        )
