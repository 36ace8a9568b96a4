"""Replication: ``<root>/replication.json``: what a send waits for, and whether followers lack what was answered.

The process that sends the log to followers writes the settings when it starts. They stay when it ends: a store that
refuses sends without a follower refuses them also while nobody can follow. :class:`rmqclient.store.append.replicas`
keeps the other half, what was answered without followers; it is on the disk before the first such answer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.layout import RESTRICTED
from rmqclient.store.settings import document

REPLICATION_FILE: Final = Path("replication.json")
LEAST_TIMEOUT_MS: Final = 100


class Sync(StrEnum):
    """What a send waits for, beside what its own store promises."""

    NONE = "none"  #: nothing: followers get the message a moment later [ASYNC_MASTER]
    MEMORY = "memory"  #: that followers have the message in their logs [SYNC_MASTER]
    DISK = "disk"  #: that it is on their disks, which only followers of this library can say


class OnLost(StrEnum):
    """What becomes of a send that waits, while fewer followers are in sync than it needs."""

    REFUSE = "refuse"  #: it raises before anything is written
    DEGRADE = "degrade"  #: it is answered all the same, and that is written down before [SLAVE_NOT_AVAILABLE]


@dataclass(frozen=True, slots=True)
class Replication:
    """The settings, and what was answered without followers. Raises ValueError for numbers that cannot be."""

    sync: Sync = Sync.NONE
    on_lost: OnLost = OnLost.REFUSE
    followers: int = 1
    """How many followers must have a message; the slowest of the fastest so many counts, never the fastest alone."""
    timeout_ms: int = 3_000
    """How long a send waits, and how far behind in time a follower may be to be in sync. [slaveTimeout]"""
    missing_from: int | None = None
    """Where the log ended at the followers when the first message was answered without them; None while they have
    all that was answered."""
    missing_since_ms: int | None = None
    """When that was, ms since 1970."""
    waits_from: int = 0
    """Where the log ended when sends began to wait, or how far followers were: nothing below was answered without
    them, but for what is noted."""

    def __post_init__(self) -> None:
        if not 1 <= self.followers <= 16:
            raise ValueError(f"followers={self.followers}: 1 to 16 can be waited for")
        if self.timeout_ms < LEAST_TIMEOUT_MS:
            raise ValueError(f"timeout_ms={self.timeout_ms}: must be at least {LEAST_TIMEOUT_MS}")

    @property
    def restriction(self) -> int:
        """The bits of ``restricted`` that these settings set."""
        return 0 if self.sync is Sync.NONE else RESTRICTED[self.on_lost.value]

    def missing(self, from_offset: int | None, since_ms: int | None) -> Replication:
        """Return the same settings, with what was answered without followers."""
        return replace(self, missing_from=from_offset, missing_since_ms=since_ms)


ASYNC: Final = Replication()
"""Nobody waits."""


def read_replication(root: Path) -> Replication:
    """Return what is set; the defaults when nothing was. Raises StoreCorrupt for a damaged file."""
    path = root / REPLICATION_FILE
    found: dict[str, Any] = document.read(path) or {}
    try:
        return Replication(
            **{**found, "sync": Sync(found.get("sync", "none")), "on_lost": OnLost(found.get("on_lost", "refuse"))}
        )
    except (TypeError, ValueError) as error:
        raise StoreCorrupt(path, 0, f"does not say what sends wait for: {error}") from error


def write_replication(root: Path, settings: Replication) -> None:
    """Keep the settings, for good. The writer holds ``TOPIC_BYTE``. Raises StoreFull."""
    text = document.render(asdict(settings))
    document.write(root / REPLICATION_FILE, text, CrashPoint.REPLICATION_TEMPORARY)
