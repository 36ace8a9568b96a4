"""Disk levels: how full the file system of a store is, and whether appends go on.

The housekeeper looks every second and puts the answer into the runtime header, where an append finds it for the price
of one load (RocketMQ keeps it in ``RunningFlags``). An append that is refused looks at the disk again, so senders go on
as soon as there is room, with or without a housekeeper. Consumers are never refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqclient.store.config import StoreConfig
from rmqclient.store.errors import StoreFull
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

LOOK_INTERVAL_MS = 1_000


class Usage(NamedTuple):
    """How full a file system is, as ``df`` shows it: blocks reserved for root count as used."""

    used_percent: float
    free_bytes: int


class Disk:
    """The file system of one store, as one process sees it.

    ``unshare`` gives the mapped files blocks of their own; it raises StoreFull when there is no room for that.
    """

    def __init__(
        self, root: Path, state: SharedState, config: StoreConfig, unshare: Callable[[], None] = lambda: None
    ) -> None:
        self._root = root
        self._state = state
        self._config = config.retention
        self._unshare = unshare

    def usage(self) -> Usage:
        """Ask the file system (UtilAll.getDiskPartitionSpaceUsedPercent)."""
        status = os.statvfs(self._root)
        used = status.f_blocks - status.f_bfree
        entire = used + status.f_bavail
        return Usage(100 * used / entire if entire else 0.0, status.f_bavail * status.f_frsize)

    def enter(self) -> None:
        """Look for shared blocks before this process appends: the store may have been cloned while it was closed."""
        if self._sharing():
            self._state.disk_full = 1

    def look(self) -> None:
        """Look at the disk, and tell every process whether appends are refused."""
        problem = self._sharing() or self._fullness()
        if problem and not self._state.disk_full:
            _log.error("appends to %s are refused: %s", self._root, problem)
        elif self._state.disk_full and not problem:
            _log.warning("appends to %s go on: there is room again", self._root)
        self._state.disk_full = 1 if problem else 0

    def check_room(self) -> None:
        """Look again for an append that was refused. Raises StoreFull, or lets every process append again."""
        problem = self._fullness() or self._sharing()
        if problem:
            raise StoreFull(f"nothing was written: {problem}")
        if self._state.disk_full:
            self._state.disk_full = 0

    def _sharing(self) -> str | None:
        try:
            self._unshare()
        except StoreFull as error:
            return str(error)
        return None

    def _fullness(self) -> str | None:
        usage, config = self.usage(), self._config
        if usage.used_percent > config.disk_full_percent:
            return (
                f"the file system of {self._root} is {usage.used_percent:.1f} % used, over the limit of "
                f"{config.disk_full_percent} (disk_full_percent). Make room, or raise the limit"
            )
        if usage.free_bytes < config.disk_reserve_bytes:
            return (
                f"the file system of {self._root} has {usage.free_bytes} bytes free, less than the "
                f"{config.disk_reserve_bytes} of disk_reserve_bytes. Make room, or lower the reserve"
            )
        return None
