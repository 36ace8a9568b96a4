"""Strain: when a member says that long calls keep all its threads, so that others are to have its queues.

A member is *busy* from the moment when one call has kept each of its threads for a second while messages wait, until a
thread is free. If that is soon, moving its queues was not worth it, and the next time it waits for twice as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from rmqclient.backend.group_protocols import Membership

KEPT_S: Final = 1.0
"""How long a call keeps a thread before it counts as long."""

_MOST_PATIENCE_S = 8.0
_WORTH_IT_S = 1.0
"""How long a member must stay busy for the moves of its queues to be worth it."""


class Strain:
    """Says for one member how busy it is; for one thread."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._is_shown = False
        self._busy_at = 0.0
        self._patience_s = KEPT_S

    @property
    def is_busy(self) -> bool:
        """Whether the others are to have the queues of this member."""
        return self._busy_at > 0

    def look(self, kept_s: float, has_waiting: Callable[[], bool]) -> None:
        """Say that one call has kept each thread for ``kept_s`` seconds; ``has_waiting`` tells if messages wait."""
        if kept_s < KEPT_S:
            self._end()
            return
        if not self._busy_at and kept_s >= self._patience_s and has_waiting():
            self._busy_at = time.monotonic()
        self._is_shown = True
        self._membership.show_kept(busy=self.is_busy)

    def _end(self) -> None:
        if self._busy_at:
            was_worth_it = time.monotonic() - self._busy_at >= _WORTH_IT_S
            self._patience_s = KEPT_S if was_worth_it else min(2 * self._patience_s, _MOST_PATIENCE_S)
            self._busy_at = 0.0
        if self._is_shown:
            self._is_shown = False
            self._membership.show_free()
