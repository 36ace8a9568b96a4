"""Around: which processes stand still with the store open, or have one open that was removed.

To know it, every process of the host is asked for its files, which takes longer than all else on the first page. Pages
are fetched anew every two seconds, so they share a look.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from rmqclient.store.observe.processes import look
from rmqclient.store.threads.standing import Onlooked

KEPT_S = 10.0


class Around:
    """Looks at the processes of this host, for one store, once in ten seconds at most. Safe for threads."""

    def __init__(self, root: Callable[[], Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._lock = threading.Lock()
        self._looked: tuple[float, Onlooked] | None = None

    def now(self) -> Onlooked:
        """Return what the last look has found, or look. Raises StoreUnusable where no store is."""
        with self._lock:
            if self._looked is None or self._clock() - self._looked[0] > KEPT_S:
                self._looked = self._clock(), look(str(self._root()))
            return self._looked[1]
