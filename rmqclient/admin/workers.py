"""Workers: their slots, for supervisors, for workers and for the command line.

The workers of a store have them in its shared memory (:mod:`rmqclient.store.runtime.worker_table`); those of a cluster
have files of this host (:mod:`rmqclient.admin.worker_files`).
"""

from __future__ import annotations

from typing import Protocol

from rmqclient.admin.worker_files import WorkerFiles
from rmqclient.store import Awake, Pauses, WorkerState, WorkerStatus

__all__ = ["Awake", "Pauses", "WorkerSlot", "WorkerState", "WorkerStatus", "WorkerTable", "workers_of_cluster"]


class WorkerSlot(Protocol):
    """A slot as its worker sees it."""

    def set_state(self, state: WorkerState) -> None:
        """Tell the supervisor how far the worker is."""

    def beat(self) -> None:
        """Show that the process runs and can get the GIL."""

    def report(self, in_flight: int, handled: int, failed: int, message_started_ns: int) -> None:
        """Tell the supervisor what the worker does."""


class WorkerTable(Protocol):
    """The slots of all workers, as a supervisor uses them."""

    def claim(self, name: str = "", restarts: int = 0) -> int:
        """Claim a slot for a worker; ``restarts`` counts the earlier starts. Raises TableFull, StoreBusy, OSError."""

    def assign(self, slot: int, pid: int) -> None:
        """Say which process runs in a claimed slot."""

    def mark_overdue(self, slot: int, limit_s: float) -> None:
        """Say that the worker is about to be ended, because messages have been in their handler for longer than that.

        On a cluster nobody learns of it: the next member has another host's word for it, if any.
        """

    def release(self, slot: int) -> None:
        """Give a slot back."""

    def attach(self, slot: int) -> WorkerSlot:
        """Return the slot for the worker's own use."""

    def status(self, slot: int) -> WorkerStatus:
        """Return what the worker of a slot last reported."""


def workers_of_cluster(url: str) -> WorkerFiles:
    """Return the slots of this host for a cluster. Raises InvalidURL."""
    # A store needs nothing of a cluster.
    from rmqclient.cluster.address.state_directory import cluster_directory  # noqa: PLC0415
    from rmqclient.cluster.address.url import ClusterURL  # noqa: PLC0415

    return WorkerFiles(cluster_directory("workers", ClusterURL.parse(url).name_servers))
