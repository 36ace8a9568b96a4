"""Followers: computes the acknowledged end of the log from the reports of all connected followers.

A report is about one follower's own log, so N followers have the log up to the N-th largest of their ends. A follower
counts once, by its newest connection, even if that reports less than the one before: then the follower has lost
something.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rmqclient.store.settings.replication import Replication, Sync


class Follower(Protocol):
    """One connection of a follower."""

    @property
    def identity(self) -> str:
        """Its copy id, ``host:directory``, or its host if it has not sent one."""

    @property
    def reported(self) -> int | None:
        """The end in its last report; None before the first one."""

    @property
    def acked(self) -> int | None:
        """The end up to which it has acknowledged bytes that were sent; None before the first acknowledgement."""

    @property
    def is_flushed(self) -> bool:
        """Whether it reports bytes on its disk, rather than in memory."""


def acknowledged(connections: Iterable[Follower], settings: Replication) -> int | None:
    """Return the end up to which the required number of followers have the log; None if there are fewer followers.

    ``connections`` are the open ones, the oldest first.
    """
    ends: dict[str, int | None] = {}
    for each in connections:
        if each.reported is not None:
            counts = each.is_flushed or settings.sync is not Sync.DISK
            ends[each.identity] = each.acked if counts else None
    known = sorted((end for end in ends.values() if end is not None), reverse=True)
    return known[settings.followers - 1] if len(known) >= settings.followers else None
