"""What a process of the run sees of its queues: grants, leases, acknowledgements, each by a record of its history.

The product has no switch for this. The three calls in which a queue changes hands, and the store's grant in which every
acknowledgement is taken or refused, are wrapped in the child process that is to be watched.
"""

from __future__ import annotations

from typing import Any

from rmqclient.store import Member, MessageQueue, QueueGrant
from rmqclient.store.handles.grants import Grants
from rmqclient.store.runtime.group_table import GroupQueueSlot
from tests.checker.history import History, Kind, now
from tests.checker.plan import Plan, group_name


class RecordedGrant:
    """A grant that writes down what its owner takes first, and how each acknowledgement ends."""

    __slots__ = ("_acknowledge", "_acknowledge_offsets", "_grant", "_group", "_history", "_number", "_taken")

    def __init__(self, grant: QueueGrant, history: History, number: int, group: int) -> None:
        keep = object.__setattr__
        keep(self, "_grant", grant)
        keep(self, "_history", history)
        keep(self, "_number", number)
        keep(self, "_group", group)
        keep(self, "_taken", False)
        keep(self, "_acknowledge", grant.acknowledge)
        keep(self, "_acknowledge_offsets", grant.acknowledge_offsets)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grant, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._grant, name, value)

    def take(self, *arguments: Any, **options: Any) -> Any:
        """Take, and write down the offset of the first message of all."""
        batch = self._grant.take(*arguments, **options)
        if batch and not self._taken:
            object.__setattr__(self, "_taken", True)
            self._write(Kind.FIRST_TAKE, now(), batch[0].queue_offset)
        return batch

    def acknowledge(self, message: Any) -> bool:
        """Acknowledge, and write down whether it was taken."""
        at = now()
        taken: bool = self._acknowledge(message)
        self._write(Kind.COMMIT if taken else Kind.REFUSED, at, message.queue_offset)
        return taken

    def acknowledge_offsets(self, offsets: list[int]) -> bool:
        """Acknowledge several, and write down each."""
        at = now()
        taken: bool = self._acknowledge_offsets(offsets)
        for offset in offsets:
            self._write(Kind.COMMIT if taken else Kind.REFUSED, at, offset)
        return taken

    def give_back(self, offsets: list[int], *, dead_lettered: bool) -> bool:
        """Acknowledge messages that are stored elsewhere, and write down each."""
        at = now()
        taken: bool = self._grant.give_back(offsets, dead_lettered=dead_lettered)
        for offset in offsets:
            self._write(Kind.COMMIT if taken else Kind.REFUSED, at, offset)
        return taken

    def lent_to(self, running: Any) -> RecordedGrant:
        """Return the grant of a call that goes on, which writes down the same."""
        return RecordedGrant(self._grant.lent_to(running), self._history, self._number, self._group)

    def renew(self, lease_ms: int) -> bool:
        """Renew the lease, and write down whether the queue was lost."""
        at = now()
        renewed: bool = self._grant.renew(lease_ms)
        self._write(Kind.RENEW if renewed else Kind.LOST, at)
        return renewed

    def release(self) -> bool:
        """Write down that the queue is given back, then give it back."""
        self._write(Kind.RELEASE, now())
        released: bool = self._grant.release()
        return released

    def _write(self, kind: Kind, at: int, offset: int = 0) -> None:
        self._history.write(kind, at, self._grant.epoch, offset, self._number, self._group)


def record_queues(plan: Plan, history: History, group: int) -> None:
    """From now on, write down how queues come to this process, stay and go."""
    grant, take = Grants.grant, Member.take
    queue_slot = Member.queue_slot
    own = group_name(group)
    numbers: dict[int, int] = {}

    def number_of(slot: GroupQueueSlot) -> int:
        return numbers[slot.queue_slot]

    def recorded_grant(self: Grants, slot: GroupQueueSlot, epoch: int, *filters: Any) -> Any:
        granted = grant(self, slot, epoch, *filters)
        queue = granted.queue
        number = plan.queue_numbers.get((queue.topic, queue.queue_id))
        if slot.group != own or number is None:
            return granted
        history.write(Kind.GRANT, now(), epoch, granted.committed_offset, number, group)
        return RecordedGrant(granted, history, number, group)

    def numbered_queue_slot(self: Member, queue: MessageQueue) -> GroupQueueSlot:
        slot = queue_slot(self, queue)
        numbers[slot.queue_slot] = plan.queue_numbers[queue.topic, queue.queue_id]
        return slot

    def recorded_take(self: Member, slot: GroupQueueSlot, *options: Any, **more: Any) -> Any:
        at = now()
        epoch = take(self, slot, *options, **more)
        if epoch is not None:
            history.write(Kind.RENEW, at, epoch, queue=number_of(slot), group=group)
        return epoch

    Grants.grant = recorded_grant  # type: ignore[method-assign, assignment]
    Member.queue_slot = numbered_queue_slot  # type: ignore[method-assign]
    Member.take = recorded_take  # type: ignore[method-assign]
