"""Workers: their slots in the store, for supervisors, for workers and for the command line."""

from __future__ import annotations

from rmqclient.store import WorkerSlot, WorkerState, WorkerStatus, WorkerTable

__all__ = ["WorkerSlot", "WorkerState", "WorkerStatus", "WorkerTable"]
