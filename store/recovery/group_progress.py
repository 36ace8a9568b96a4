"""Group progress: how far each group has come with each queue, as recovery finds it.

While the kernel that ran the last processes still runs, the runtime file has all of it: :func:`progress_of`. After a
reboot ``consumerOffset.json`` has the committed offsets: :func:`progress_on_disk`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.kernel._kernel import running_in
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.group_table import GroupTable
from rmqclient.store.runtime.queue_table import QueueTable
from rmqclient.store.runtime.shared_state import SharedState, running_slot_at
from rmqclient.store.settings import config_file


@dataclass(frozen=True, slots=True)
class InterruptedRun:
    """Messages of one group-queue that were being handled when their process died; see the running table."""

    queue_offset: int
    last_offset: int
    attempt: int
    pid: int


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group has come with one queue."""

    committed_offset: int
    acknowledged: int = 0
    """The acknowledgement bits above the committed offset."""
    epoch: int = 0
    interrupted: tuple[InterruptedRun, ...] = ()
    held: tuple[int, int] = (0, 0)
    """``held_offset`` and ``held_attempts`` of an ordered queue."""
    fence: tuple[int, int] = (0, 0)
    """``fenced_until`` and ``fenced_for``: of a server that is dead as all others, whose client may live."""
    paused: bool = False
    counters: Mapping[str, int] = field(default_factory=dict)
    """What became of its messages, by :data:`rmqclient.store.runtime.group_table.COUNTERS`."""


Progress = dict[tuple[str, MessageQueue], GroupProgress]


def finish_seeks(leftover: SharedState, timeout_ms: int) -> None:
    """Finish every seek that a killed process left under way in the runtime file. Raises StoreBusy."""
    for slot in GroupTable(leftover, timeout_ms):
        slot.finish_seek()


def progress_of(leftover: SharedState, topics: QueueTable, timeout_ms: int) -> Progress:
    """Read the groups' progress from the runtime file, its seeks finished.

    It includes the acknowledgements above the committed offset, and the runs that were interrupted: no process that
    used the store is alive.
    """
    kept: Progress = {}
    for slot in GroupTable(leftover, timeout_ms):
        bits = slot.acknowledged_bits()
        committed, advance_to = slot.load("committed_offset"), slot.load("advance_to")
        # An owner may have died in the middle of an advance, which over removed messages is one of any length.
        for offset in range(max(committed, advance_to - layout.ACK_WINDOW), advance_to):
            bits &= ~(1 << offset % layout.ACK_WINDOW)
        interrupted = tuple(_interrupted(leftover, slot.number))
        held = slot.load("held_offset"), slot.load("held_attempts")
        paused = bool(slot.load("paused"))
        epoch, fence, counters = slot.load("epoch"), slot.standing_fence, slot.counters()
        progress = GroupProgress(advance_to, bits, epoch, interrupted, held, fence, paused, counters)
        kept[slot.group, topics.queue(slot.queue_slot)] = progress
    return kept


def progress_on_disk(root: Path) -> Progress:
    """Read the groups' progress from ``consumerOffset.json``. Raises StoreCorrupt for a damaged file."""
    return {
        (group, MessageQueue(topic, queue_id)): GroupProgress(offset)
        for (topic, group), offsets in config_file.read_consumer_offsets(root).items()
        for queue_id, offset in offsets.items()
    }


def _interrupted(leftover: SharedState, group_queue: int) -> Iterator[InterruptedRun]:
    for number in running_in(leftover.mapping, layout.RUNNING_TABLE_AT, leftover.running_count, group_queue):
        fields = layout.RUNNING_SLOT.read(leftover.mapping, running_slot_at(number))
        yield InterruptedRun(fields["queue_offset"], fields["last_offset"], fields["attempt"], fields["pid"])
