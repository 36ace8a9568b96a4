"""Status: the follower's last observations, in ``<root>/follower.json``, for other processes and after its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from rmqclient.store.settings import document

_FILE: Final = Path("follower.json")


@dataclass(frozen=True, slots=True)
class Seen:
    """Observations of a follower. Times are in ms since 1970, by the clock of the replica."""

    primary: str = ""
    """The primary's address for replicas."""
    contact_ms: int = 0
    """Last contact with the primary; 0 for never."""
    primary_end: int = 0
    """The end of its log at the last contact."""
    level_ms: int = 0
    """When the replica last had all of the primary's log; 0 for never."""
    problem: str = ""
    """The reason for which the replica does not follow now; empty if it does."""


def seen_of(root: Path, primary: str) -> Seen:
    """Return the observations of one primary; empty ones if the replica followed another one until now."""
    seen = read_seen(root)
    return seen if seen.primary == primary else Seen(primary)


def write_seen(root: Path, seen: Seen) -> None:
    """Write the file. Raises StoreFull."""
    document.replace_file(root / _FILE, orjson.dumps(asdict(seen)))


def read_seen(root: Path) -> Seen:
    """Read the file; empty observations if it is missing or damaged."""
    try:
        found: Any = orjson.loads(document.content(root / _FILE, missing=b"{}"))
        return Seen(**found)
    except (orjson.JSONDecodeError, TypeError):
        return Seen()
