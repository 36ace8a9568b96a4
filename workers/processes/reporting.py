"""Reporting: what a supervisor tells of its workers, to the log, to its service manager and to probes.

A supervisor calls :meth:`Reporting.look` in every turn of its loop. It is *well* in a turn in which no worker has been
silent for twice as long as a supervisor allows: it replaces such a worker itself, so one that is left shows that it
cannot. Only a turn in which it is well feeds the watchdog of the service manager.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rmqclient.admin.workers import WorkerState, WorkerStatus
from rmqclient.errors import QueueError
from rmqclient.health.service_manager import ServiceManager
from rmqclient.metrics import Group

WELL_FOR_S = 10.0
"""A supervisor that was well so long ago counts as stuck. A turn takes a quarter of a second."""

_NAMED = 3
"""Spare members of a group that a progress line names."""

_log = logging.getLogger(__name__)


class Done(NamedTuple):
    """What workers have done since their supervisor began."""

    handled: int = 0
    failed: int = 0


class Reporting:
    """Tells how the workers of one supervisor are.

    ``groups`` returns the groups of the handlers as they stand, and may raise QueueError or OSError. ``every_s`` is the
    time between two lines of the log; 0 writes none.
    """

    def __init__(
        self,
        manager: ServiceManager | None = None,
        groups: Callable[[], Sequence[Group]] = tuple,
        *,
        every_s: float = 0.0,
        beat_timeout_s: float = 30.0,
    ) -> None:
        self._manager = manager or ServiceManager()
        self._groups = groups
        self._every_s = every_s
        self._silent_s = 2 * beat_timeout_s
        self._seen: dict[int, Done] = {}
        self._done = self._told = Done()
        self._tell_at = time.monotonic() + every_s
        self._well_at = 0.0
        self._ready = 0
        self._wanted = -1
        self._was_ready = False
        self._is_stopping = False

    @property
    def is_well(self) -> bool:
        """Whether the loop turns, and leaves no worker silent."""
        return time.monotonic() - self._well_at < WELL_FOR_S

    @property
    def is_ready(self) -> bool:
        """Whether every worker is ready."""
        return self.is_well and not self._is_stopping and self._ready == self._wanted

    def look(self, wanted: int, statuses: Mapping[int, WorkerStatus]) -> None:
        """Tell what is new. ``wanted`` workers should run; ``statuses`` are those of the processes, by their slots."""
        self._count(statuses)
        self._ready = sum(status.state in (WorkerState.READY, WorkerState.OVERDUE) for status in statuses.values())
        self._wanted = wanted
        if not any((status.beat_age_ms or 0.0) > self._silent_s * 1000 for status in statuses.values()):
            self._well_at = time.monotonic()
            self._manager.alive()
        if self._is_stopping:
            return
        if self._ready == wanted and not self._was_ready:
            self._was_ready = True
            _log.info("all workers are ready: %d", wanted)
            self._manager.ready(self.state)
            self._warn_of_pauses()
        elif self._was_ready:
            self._manager.status(self.state)
        if self._every_s and time.monotonic() >= self._tell_at:
            self._tell()

    def stopping(self, in_flight: int, within_s: float) -> None:
        """Tell that the workers are told to stop."""
        self._is_stopping = True
        self._manager.stopping(f"stopping, messages in flight: {in_flight}", within_s)

    def _count(self, statuses: Mapping[int, WorkerStatus]) -> None:
        """Add what is new in each slot, whose counts begin at 0 with each process."""
        handled, failed = self._done
        for slot, status in statuses.items():
            before = self._seen.get(slot, Done())
            if status.handled < before.handled or status.failed < before.failed:
                before = Done()
            handled += status.handled - before.handled
            failed += status.failed - before.failed
        self._seen = {slot: Done(status.handled, status.failed) for slot, status in statuses.items()}
        self._done = Done(handled, failed)

    @property
    def state(self) -> str:
        """How many workers are ready, in words."""
        return f"{self._ready} of {self._wanted} workers ready"

    def _tell(self) -> None:
        self._tell_at += self._every_s
        new = Done(self._done.handled - self._told.handled, self._done.failed - self._told.failed)
        self._told = self._done
        _log.info("%s; handled %d, failed %d since the last line%s", self.state, *new, self._standing())

    def _warn_of_pauses(self) -> None:
        """Say which groups get nothing although their workers are ready."""
        with contextlib.suppress(QueueError, OSError):
            for group in _paused(self._groups()):
                _log.warning("group %s is paused, so its handlers get nothing: rmq group resume %s", group, group)

    def _standing(self) -> str:
        try:
            groups = self._groups()
        except (QueueError, OSError) as error:
            return f"; the groups cannot be read: {error}"
        told = [f"lag {sum(each.lag for each in groups)}"] if groups else []
        told += [f"paused: {', '.join(paused)}"] if (paused := _paused(groups)) else []
        told += [f"spare in {each.group}: {_some(each.spare)} of {len(each.members)}" for each in groups if each.spare]
        return "".join(f"; {each}" for each in told)


def _paused(groups: Sequence[Group]) -> list[str]:
    return [info.group for info in groups if "paused" in info.state]


def _some(client_ids: Sequence[str]) -> str:
    rest = len(client_ids) - _NAMED
    return ", ".join([*client_ids[:_NAMED], *([f"{rest} more"] if rest > 0 else [])])
