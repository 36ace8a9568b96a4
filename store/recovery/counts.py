"""Counts: what the runtime file counted, for the next one. The counters of groups go with their progress.

A counter may begin at 0 again after a reboot, and never falls otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime import handling_table
from rmqclient.store.runtime.queue_table import QueueTable
from rmqclient.store.runtime.shared_state import SharedState


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted by a runtime file."""

    bytes_in: Mapping[MessageQueue, int] = field(default_factory=dict)
    handling: tuple[bytes, ...] = ()
    """The slots of the handling table, whole."""
    worker_restarts: int = 0
    epoch: int = 0
    """The counting epoch, 0 when nothing goes on."""


def counts_of(leftover: SharedState, topics: QueueTable) -> Counts:
    """Read what was counted from the runtime file that the last processes left, its appends settled."""
    return Counts(topics.bytes_in(), handling_table.kept(leftover), leftover.worker_restarts, leftover.counting_epoch)


def restore(state: SharedState, topics: QueueTable, counts: Counts) -> None:
    """Go on counting from there, in a new runtime file whose queues have their slots."""
    known = set(topics.all_queues())
    for queue, count in counts.bytes_in.items():
        if queue in known:
            topics.set_bytes_in(queue, count)
    handling_table.restore(state, counts.handling)
    state.worker_restarts = counts.worker_restarts
    state.counting_epoch = counts.epoch or state.counting_epoch
