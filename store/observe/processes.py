"""Processes: which of them have a store open, and whether its housekeeper is at work, as an onlooker sees it."""

from __future__ import annotations

import os
import time

from rmqclient.store import layout
from rmqclient.store.observe.shared_file import BROKER_BYTE, HOUSEKEEPER_BYTE, SharedFile, Unreadable
from rmqclient.store.threads import standing as holders

_STANDS_AFTER_S = 5.0
"""A housekeeper that has shown nothing for so long stands still. Others take its role earlier, if there are any."""


class Processes:
    """The processes of one store."""

    def __init__(self, shared: SharedFile) -> None:
        self._shared = shared

    @property
    def is_open(self) -> bool:
        """Whether some process has the store open. Otherwise all else is how the last one left it."""
        return self._shared.is_locked(BROKER_BYTE)

    @property
    def has_housekeeper(self) -> bool:
        """Whether a process flushes, removes old files and delivers what waits."""
        return self._shared.is_locked(HOUSEKEEPER_BYTE) and self.housekeeper_silent_s <= _STANDS_AFTER_S

    @property
    def housekeeper_silent_s(self) -> float:
        """Seconds since the housekeeper last showed that it is at work; 0 while it has shown nothing yet."""
        beat = self._shared.word("housekeeper_beat")
        return (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - beat) / 1e9 if beat else 0.0

    def failing_passes(self) -> list[str]:
        """Return what of the housekeeper's work failed when it last ran, in words."""
        failing = self._shared.word("failing")
        return [name for bit, name in enumerate(layout.PASSES) if failing >> bit & 1]

    def look(self) -> holders.Onlooked:
        """Return which processes stand still, or have a store open that was removed, as far as they can be seen here.

        It reads about every process of the host, so it is the dearest part of a look at a store.
        """
        return look(self._shared.root)

    @property
    def is_renamed(self) -> bool:
        """Whether a process that has the store open found that the directory has another name than it knows."""
        return self.is_open and bool(self._shared.word("restricted") & layout.RESTRICTED["replaced"])

    def users(self) -> list[holders.Holder]:
        """Return the processes that have the store open, as far as they can be seen from here."""
        return holders.in_use().get(os.path.realpath(self._shared.root), [])


def look(root: str) -> holders.Onlooked:
    """Return the same of the directory of a store, even if there is none any more."""
    return holders.look(os.path.join(root, "lock"))


def renamed() -> dict[str, list[holders.Holder]]:
    """Return the directories that were renamed while processes had their stores open, which still have them open."""
    return {root: users for root, users in holders.in_use().items() if _is_renamed(root)}


def _is_renamed(root: str) -> bool:
    try:
        with SharedFile(root) as shared:
            return Processes(shared).is_renamed
    except Unreadable:
        return False
