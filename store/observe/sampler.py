"""Sampler: one observation of a store after another, without opening it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from rmqclient.store import clock, layout
from rmqclient.store.closing import Closing
from rmqclient.store.errors import StoreUnusable
from rmqclient.store.log.sizes import settings_of
from rmqclient.store.observe.observation import Observation
from rmqclient.store.observe.reading import Reading
from rmqclient.store.observe.shared_file import Unreadable

HISTOGRAM_BOUNDS_S: Final = tuple(bound / 1000 for bound in layout.HANDLING_BOUNDS_MS)
"""Upper bounds of the classes of every histogram."""


class Sampler(Closing):
    """Observes the store in the directory ``root``; a context manager, for one thread.

    It follows when the store is closed and opened anew. :meth:`sample` raises StoreUnusable when the directory holds no
    store, or nobody has opened the store since the machine started; ConfigMismatch for a store of another version.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._reading: Reading | None = None

    def sample(self) -> Observation:
        """Take one look."""
        return self._attached().observe(wall_ms=clock.wall_ms(), ages=layout.GROUP_QUEUE_SLOTS)

    def close(self) -> None:
        """Let go of the store. Closing twice does nothing."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _attached(self) -> Reading:
        """Return the runtime file as it is now; the last process that opened the store may have built a new one."""
        path = self.root / "shared"
        if self._reading is None or self._reading.shared.identity != _identity(path):
            self.close()
            settings_of(self.root)  # says best what is wrong with the directory
            self._reading = self._opened(path)
        return self._reading

    def _opened(self, path: Path) -> Reading:
        with suppress(Unreadable):
            reading = Reading(str(self.root))
            if reading.shared.is_present:
                return reading
            reading.close()
        raise StoreUnusable(
            f"{path}: no process of this version has opened the store since the machine started; start one"
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
