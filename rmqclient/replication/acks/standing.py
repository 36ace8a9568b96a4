"""Standing: the state of a store's replication, for any process of its host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rmqclient.replication.acks.connected import Connected, connected
from rmqclient.store import clock, open_store
from rmqclient.store.settings.replication import read_replication


@dataclass(frozen=True, slots=True)
class Standing:
    """What sends wait for, and what followers have. Offsets are bytes of the log."""

    wait_for: str
    """``none``, ``memory`` or ``disk``."""
    on_lost: str
    followers: int
    """Number of followers that must have a message."""
    in_sync: bool | None
    """Whether this number is in sync; None if sends do not wait."""
    replicated_to: int | None
    """The end up to which this number of followers have the log; None if sends do not wait."""
    unreplicated_bytes: int
    """Bytes from the first message that was answered without followers; 0 if they have all answered messages."""
    unreplicated_s: float | None
    """Seconds since that message; None if they have all answered messages."""
    replicas: tuple[Connected, ...]
    """The replicas connected a few seconds ago."""


def standing(root: Path) -> Standing | None:
    """Return the state of a store; None for one that takes no messages of its own. Raises as opening it."""
    with open_store(root, create=False, housekeeping=False, settling=True) as store:
        if store.life.is_replica:
            return None
        settings, end = read_replication(root), store.state.published_to
        waits, since = store.replicas.are_waited_for, settings.missing_since_ms
        return Standing(
            settings.sync.value,
            settings.on_lost.value,
            settings.followers,
            store.replicas.are_in_sync if waits else None,
            store.state.replicated_to if waits else None,
            0 if settings.missing_from is None else end - settings.missing_from,
            None if since is None else (clock.wall_ms() - since) / 1000,
            connected(root),
        )
