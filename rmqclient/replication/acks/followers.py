"""Followers: what is acknowledged, by the reports of all who are connected.

A report is one follower's word for its own log. So what N followers have is the N-th of their ends, from the furthest
down, and never the furthest alone. One follower counts once: its newest connection speaks for it, also when that says
less than the one before, because the follower has lost something then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rmqclient.store.settings.replication import Replication, Sync


class Follower(Protocol):
    """One connection of a follower."""

    @property
    def identity(self) -> str:
        """Which follower it is: its copy, ``host:directory``, if it says so, else its host."""

    @property
    def reported(self) -> int | None:
        """What it said last; None before its first report."""

    @property
    def acked(self) -> int | None:
        """The end of what it is known to have; None before it has answered what it was sent."""

    @property
    def is_flushed(self) -> bool:
        """Whether it reports what is on its disk, rather than in its memory."""


def acknowledged(connections: Iterable[Follower], settings: Replication) -> int | None:
    """Return up to where as many followers have the log as are waited for; None when there are fewer of them.

    ``connections`` are the open ones, the oldest first.
    """
    ends: dict[str, int | None] = {}
    for each in connections:
        if each.reported is not None:
            counts = each.is_flushed or settings.sync is not Sync.DISK
            ends[each.identity] = each.acked if counts else None
    known = sorted((end for end in ends.values() if end is not None), reverse=True)
    return known[settings.followers - 1] if len(known) >= settings.followers else None
