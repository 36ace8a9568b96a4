"""Status: what the follower saw last, in ``<root>/follower.json``, for whoever asks while it runs or after its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from rmqclient.store.settings import document

_FILE: Final = Path("follower.json")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a follower knows. Times are in ms since 1970, by the clock of the replica."""

    primary: str = ""
    """Of whom this is known: where it sends its log."""
    contact_ms: int = 0
    """When the primary said something last; 0 for never."""
    primary_end: int = 0
    """The end of its log, as it said last."""
    level_ms: int = 0
    """When all that the primary had was here; 0 for never."""
    problem: str = ""
    """Why the replica does not follow just now; empty when it does."""


def seen_of(root: Path, primary: str) -> Seen:
    """Return what was seen of one primary; nothing when the replica followed another one until now."""
    seen = read_seen(root)
    return seen if seen.primary == primary else Seen(primary)


def write_seen(root: Path, seen: Seen) -> None:
    """Keep what was seen. Raises StoreFull."""
    document.replace_file(root / _FILE, orjson.dumps(asdict(seen)))


def read_seen(root: Path) -> Seen:
    """Return what was seen last; nothing when no follower has run yet, or when the file is damaged."""
    try:
        found: Any = orjson.loads(document.content(root / _FILE, missing=b"{}"))
        return Seen(**found)
    except (orjson.JSONDecodeError, TypeError):
        return Seen()
