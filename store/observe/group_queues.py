"""Group queues: how far each group is in each queue, as an onlooker reads it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rmqclient.store import layout
from rmqclient.store.observe.observation import GroupQueue, Queue
from rmqclient.store.observe.records import Records
from rmqclient.store.observe.shared_file import SharedFile
from rmqclient.store.runtime.rows import MemberInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWN_GROUP = "CID_RMQ_SYS_TRANS"
"""By which the store says how far it is with transactions."""

_GENERATION_AT = 48
"""The bit of ``epoch`` from which on it counts the groups that had the slot; as in ``runtime/group_table.py``."""
_EPOCH = (1 << _GENERATION_AT) - 1
_GROUP_WORDS = (
    "paused", "epoch", "committed_offset", "advance_to", "taken_to", "owner", "owner_incarnation", "lease_until",
    "flow_control", "held_offset", "held_attempts", "delivered", "bytes_out", "handled", "retried", "dead_lettered",
    "skipped", "lost", "failed",
)  # fmt: skip
"""As they are read. What failed is counted before it is finished, so it is read behind that."""


class GroupQueues:
    """The slots of groups of one store, for one thread."""

    def __init__(self, shared: SharedFile, records: Records) -> None:
        self._shared = shared
        self._records = records
        self._names: dict[int, tuple[str, int]] = {}
        self._order: list[int] = []
        self._ordered_for: tuple[list[int], int] = [], 0

    @property
    def count(self) -> int:
        """Slots that are in use, or were."""
        return min(self._shared.word("group_queue_count"), layout.GROUP_QUEUE_SLOTS)

    def rows(self, queues: list[Queue], members: list[MemberInfo], ages: int) -> Iterator[GroupQueue]:
        """Yield what stands in each slot, but for queues that are newer than ``queues``."""
        slot, count = layout.GROUP_QUEUE_SLOT, self.count
        columns = [self._shared.column(layout.GROUP_QUEUE_TABLE_AT, slot, word, count) for word in _GROUP_WORDS]
        rows, now = list(zip(*columns, strict=True)), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        alive = {member.key: member for member in members}
        aged: dict[str, int] = {}
        for number in self._in_order(columns[0], columns[1], queues):
            paused, epoch, committed, advance_to, taken_to, owner, incarnation, lease_until, *rest = rows[number]
            group, queue_slot = self._names[number]
            flow_control, held_offset, held_attempts, delivered, size, handled, *finished, failed = rest
            queue, committed = queues[queue_slot], max(committed, advance_to)
            has = alive.get((owner, incarnation)) if lease_until >= now else None
            start, end = max(committed, queue.min_offset), queue.max_offset
            taken_to = max(start, taken_to) if owner else start
            ahead = min(self._acknowledged(number), end - start) if end > start else 0
            oldest_ms = next_ms = None
            if start < end and aged.get(group, 0) < ages:
                aged[group] = aged.get(group, 0) + 1
                oldest_ms = self._records.stored_ms(queue.queue, start)
                next_ms = oldest_ms if taken_to == start else self._stored_ms(queue, taken_to)
            yield GroupQueue(
                group,
                queue.queue,
                committed,
                queue.min_offset,
                end,
                has,
                epoch & _EPOCH,
                bool(paused),
                flow_control,
                held_attempts & 0xFFFF_FFFF if held_offset else 0,
                ahead,
                max(0, taken_to - start - ahead) if has else 0,
                max(0, end - taken_to if has else end - start - ahead),
                oldest_ms,
                next_ms,
                delivered,
                size,
                handled,
                failed,
                *finished,
            )

    def _in_order(self, paused: list[int], epochs: list[int], queues: list[Queue]) -> list[int]:
        """Return the slots by group, topic and queue id. A slot is added, forgotten, or another group's by then."""
        generations = [
            -1 if state == layout.FORGOTTEN else epoch >> _GENERATION_AT
            for state, epoch in zip(paused, epochs, strict=True)
        ]
        if (generations, len(queues)) != self._ordered_for:
            before, _ = self._ordered_for
            for number, generation in enumerate(generations):
                if generation >= 0 and (number >= len(before) or before[number] != generation):
                    self._names[number] = self.name(number)
            known = [
                (group, queues[queue_slot].queue, number)
                for number, (group, queue_slot) in self._names.items()
                if generations[number] >= 0 and group != _OWN_GROUP and queue_slot < len(queues)
            ]
            self._order = [number for _, _, number in sorted(known)]
            self._ordered_for = generations, len(queues)
        return self._order

    def name(self, number: int) -> tuple[str, int]:
        """Return the group of a slot, and the slot of its queue."""
        slot, begin = layout.GROUP_QUEUE_SLOT, layout.GROUP_QUEUE_TABLE_AT + number * layout.GROUP_QUEUE_SLOT.size
        return self._shared.text(begin, slot, "group"), self._shared.half(begin, slot, "queue_slot")

    def is_forgotten(self, number: int) -> bool:
        """Tell whether a slot is of no group."""
        at = layout.GROUP_QUEUE_TABLE_AT + number * layout.GROUP_QUEUE_SLOT.size + layout.GROUP_QUEUE_SLOT.at["paused"]
        return number >= self.count or self._shared.words[at // 8] == layout.FORGOTTEN

    def _acknowledged(self, number: int) -> int:
        """Return how many messages are finished out of order."""
        slot = layout.GROUP_QUEUE_SLOT
        begin = layout.GROUP_QUEUE_TABLE_AT + number * slot.size + slot.at["acknowledged"]
        return int.from_bytes(self._shared.view[begin : begin + layout.ACK_WINDOW // 8], "little").bit_count()

    def _stored_ms(self, queue: Queue, queue_offset: int) -> int | None:
        return self._records.stored_ms(queue.queue, queue_offset) if queue_offset < queue.max_offset else None
