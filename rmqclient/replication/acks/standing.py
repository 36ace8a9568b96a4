"""Standing: how a store stands with its followers, for whoever asks on its host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rmqclient.replication.acks.connected import Connected, connected
from rmqclient.store import clock, open_store
from rmqclient.store.settings.replication import read_replication


@dataclass(frozen=True, slots=True)
class Standing:
    """What sends wait for, and what followers have. Places are bytes of the log."""

    wait_for: str
    """``none``, ``memory`` or ``disk``."""
    on_lost: str
    followers: int
    """How many must have a message."""
    in_sync: bool | None
    """Whether so many are; None when nobody waits for them."""
    replicated_to: int | None
    """Up to where so many followers have the log, by their last words; None when nobody waits for them."""
    unreplicated_bytes: int
    """Bytes that followers may lack from the first message on that was answered without them; 0 when they have all
    that was answered."""
    unreplicated_s: float | None
    """Seconds since then; None when they have all that was answered."""
    replicas: tuple[Connected, ...]
    """Those that are connected, by what was known a few seconds ago."""


def standing(root: Path) -> Standing | None:
    """Return how a store stands; None for one that takes no messages of its own. Raises as opening it."""
    with open_store(root, create=False, housekeeping=False, settling=True) as store:
        if store.is_replica:
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
