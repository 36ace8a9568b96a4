"""Memory groups: members, grants and progress of one process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from rmqclient.backend.bells import ThreadBell
from rmqclient.backend.group_protocols import Death, Grant, Seat, Terms
from rmqclient.backend.protocols import Span
from rmqclient.errors import ClientIdInUse, SubscriptionMismatch
from rmqclient.filters import MessageFilter
from rmqclient.message import ReceivedMessage
from rmqclient.store import NOT_STRAINED, CallContext, MemberInfo, MessageQueue, Strained
from rmqclient.store.observe.observation import GroupQueue
from tests.backend.memory_log import MemoryArrivalBell, MemoryLog

FREE = (0, 0)


@dataclass
class Progress:
    """How a group stands in one queue."""

    number: int
    group: str
    queue: MessageQueue
    committed_offset: int = 0
    acknowledged: set[int] = field(default_factory=set)
    owner: tuple[int, int] = FREE
    epoch: int = 0
    lease_until: float = 0.0
    paused: bool = False
    flow_control: int = 0
    held: tuple[int, int] | None = None
    """Queue offset and attempts of the message that an ordered queue stands at."""

    def finish(self, offsets: Iterable[int]) -> None:
        self.acknowledged.update(offset for offset in offsets if offset >= self.committed_offset)
        while self.committed_offset in self.acknowledged:
            self.acknowledged.remove(self.committed_offset)
            self.committed_offset += 1

    def seek(self, offset: int) -> None:
        self.owner, self.epoch = FREE, self.epoch + 1
        self.committed_offset, self.acknowledged, self.held = offset, set(), None


class MemoryGroups:
    """The groups of one in-memory backend."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.beats: dict[int, float] = {}
        self.seats: dict[int, MemberInfo] = {}
        self.consumers: list[ThreadBell] = []
        self._progress: dict[tuple[str, MessageQueue], Progress] = {}
        self._joined = 0

    def progress(self, group: str, queue: MessageQueue, begin: int = 0) -> Progress:
        with self.log.lock:
            self.log.messages(queue)
            made = Progress(len(self._progress), group, queue, begin)
            return self._progress.setdefault((group, queue), made)

    def find(self, group: str, queue: MessageQueue) -> Progress | None:
        self.log.messages(queue)
        return self._progress.get((group, queue))

    def all(self) -> list[Progress]:
        return list(self._progress.values())

    def forget(self, group: str) -> None:
        with self.log.lock:
            self._progress = {key: each for key, each in self._progress.items() if key[0] != group}

    def join(self, group: str, topic: str, client_id: str, subscription: str, wake_slot: int) -> MemberInfo:
        with self.log.lock:
            for seat in self.seats.values():
                if (seat.group, seat.topic) == (group, topic):
                    if seat.client_id == client_id:
                        raise ClientIdInUse(f"{client_id!r} is a member already")
                    if seat.subscription != subscription:
                        raise SubscriptionMismatch(f"({subscription}) is not ({seat.subscription})")
            self._joined += 1
            seat = MemberInfo(self._joined, 1, group, topic, client_id, os.getpid(), subscription, wake_slot)
            self.seats[seat.slot] = seat
            self.beats[seat.slot] = time.monotonic()
        self.log.signal_membership()
        return seat

    def leave(self, seat: MemberInfo) -> None:
        with self.log.lock:
            self.seats.pop(seat.slot, None)
        self.log.signal_membership()

    def members(self) -> list[MemberInfo]:
        return [
            seat._replace(heartbeat_age_ms=(time.monotonic() - self.beats[seat.slot]) * 1000)
            for seat in list(self.seats.values())
        ]

    def is_alive(self, owner: tuple[int, int]) -> bool:
        return any(seat.key == owner for seat in list(self.seats.values()))


class MemoryMembers:
    """The memberships of one consumer."""

    def __init__(self, groups: MemoryGroups) -> None:
        self._groups = groups
        self.bell = ThreadBell()
        with groups.log.lock:
            self._number = len(groups.consumers)
            groups.consumers.append(self.bell)
            groups.log.membership_bells.append(self.bell)

    def join(self, group: str, topic: str, client_id: str, terms: Terms) -> MemoryMembership:
        seat = self._groups.join(group, topic, client_id, terms.text, self._number)
        return MemoryMembership(self._groups, seat, terms)

    def close(self) -> None:
        pass


class MemoryMembership:
    """One member of a group."""

    def __init__(self, groups: MemoryGroups, seat: MemberInfo, terms: Terms) -> None:
        self.group, self.topic, self.client_id = seat.group, seat.topic, seat.client_id
        self.bell = MemoryArrivalBell(groups.log)
        self._groups = groups
        self._seat = seat
        self._terms = terms

    def beat(self) -> None:
        self._groups.beats[self._seat.slot] = time.monotonic()

    def watch(self) -> bool:
        return False  # members of one process die together

    def counted(self) -> tuple[MemberInfo, ...]:
        oldest = time.monotonic() - self._terms.lease_ms / 1000
        seats = [
            seat
            for seat in list(self._groups.seats.values())
            if (seat.group, seat.topic) == (self.group, self.topic) and self._groups.beats[seat.slot] >= oldest
        ]
        return tuple(sorted(seats, key=lambda seat: (seat.client_id, seat.slot)))

    def owners(self, queues: Sequence[MessageQueue]) -> tuple[tuple[int, int], ...]:
        return tuple(self._groups.progress(self.group, queue).owner for queue in queues)

    def grant(self, queue: MessageQueue) -> MemoryGrant | None:
        progress = self._groups.progress(self.group, queue)
        with self._groups.log.lock:
            is_held = progress.owner != FREE and progress.lease_until >= time.monotonic()
            if is_held and self._groups.is_alive(progress.owner):
                return None
            progress.epoch += 1
            progress.owner = self._seat.key
            progress.lease_until = time.monotonic() + self._terms.lease_ms / 1000
            return MemoryGrant(self._groups.log, progress, self._terms.wanted)

    def renew(self, grant: Grant) -> bool:
        return cast("MemoryGrant", grant).renew(self._terms.lease_ms)

    def topics_of_others(self) -> set[str]:
        others = [each for each in self._groups.members() if each.client_id != self.client_id]
        return {each.topic for each in others if each.group == self.group}

    def interrupted(self, grant: object) -> Mapping[int, Sequence[Death]]:
        del grant  # messages die with this process
        return {}

    def lent(self, grant: object) -> None:
        """Return None: messages that run run a second time."""

    def strained(self) -> Strained:
        return NOT_STRAINED

    def show_kept(self, *, busy: bool) -> None:
        pass

    def show_free(self) -> None:
        pass

    def tell(self, seats: Iterable[Seat]) -> None:
        for seat in cast("Iterable[MemberInfo]", seats):
            self._groups.consumers[seat.wake_slot].ring()

    def claim(self, count: int) -> list[MemoryRunningSlot]:
        return [MemoryRunningSlot() for _ in range(count)]

    def stay_behind(self) -> bool:
        """Return False: the queues of a member that leaves stay with it."""
        return False

    def leave(self) -> None:
        self._groups.leave(self._seat)


class MemoryRunningSlot:
    """Nobody finds what a thread of this process says after its death: the backend dies with it."""

    def __init__(self) -> None:
        self._context = CallContext()

    def serve(self, group_queue: int, epoch: int) -> None:
        pass

    def begin(self, message: ReceivedMessage) -> None:
        del message
        self._context.renew()

    def note(self, message: ReceivedMessage) -> None:
        pass

    def begin_batch(self, messages: list[ReceivedMessage]) -> None:
        del messages
        self._context.renew()

    def show(self, messages: list[ReceivedMessage]) -> None:
        del messages
        self._context.renew()

    def fail(self, messages: int) -> None:
        pass

    def add_up(self) -> None:
        pass

    def forgive(self) -> None:
        pass

    def rest(self) -> None:
        self._context.leave()

    def release(self) -> None:
        pass


class MemoryGrant:
    """One queue, granted to one member under one epoch."""

    def __init__(self, log: MemoryLog, progress: Progress, wanted: MessageFilter) -> None:
        self.queue = progress.queue
        self.group_queue = progress.number
        self.epoch = progress.epoch
        self.next_offset = progress.committed_offset
        self.damaged: list[tuple[int, int, int]] = []
        self.expired = 0
        self.has_unopened = False
        self._log = log
        self._progress = progress
        self._wanted = wanted

    @property
    def committed_offset(self) -> int:
        return self._progress.committed_offset

    @property
    def max_offset(self) -> int:
        return len(self._log.messages(self.queue))

    @property
    def has_more(self) -> bool:
        return self.max_offset > self.next_offset

    @property
    def valid(self) -> bool:
        return self._progress.epoch == self.epoch

    @property
    def lease_is_over(self) -> bool:
        return 0 < self._progress.lease_until < time.monotonic()

    @property
    def paused(self) -> bool:
        return self._progress.paused

    def show(self, flow_control: int) -> None:
        self._progress.flow_control = flow_control

    def renew(self, lease_ms: int) -> bool:
        with self._log.lock:
            if self.valid:
                self._progress.lease_until = time.monotonic() + lease_ms / 1000
            return self.valid

    def release(self) -> bool:
        with self._log.lock:
            if self.valid:
                self._progress.owner = FREE
            return self.valid

    def arm(self, lane: int) -> bool:
        self._log.arm(self.queue, lane)
        return self.has_more

    def take(self, limit: int, span: int) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        with self._log.lock:
            while self.valid and len(found) < limit and self.next_offset < self._end(span):
                if self.next_offset not in self._progress.acknowledged:
                    message = self._log.message_at(self.queue, self.next_offset).as_delivered()
                    if self._wanted.matches(message):
                        found.append(self._counted(message))
                    else:
                        self._progress.finish([self.next_offset])
                self.next_offset += 1
        return found

    def begin(self, message: ReceivedMessage) -> bool:
        with self._log.lock:
            if self.valid:
                self._progress.held = message.queue_offset, message.delivery_attempt
            return self.valid

    def acknowledge(self, message: ReceivedMessage) -> bool:
        return self.acknowledge_offsets([message.queue_offset])

    def finish(self, messages: list[ReceivedMessage]) -> list[int]:
        return [message.queue_offset for message in messages]

    def acknowledge_offsets(self, offsets: list[int]) -> bool:
        with self._log.lock:
            if self.valid:
                self._progress.finish(offsets)
                self._progress.held = None
            return self.valid

    def give_back(self, offsets: list[int], *, dead_lettered: bool) -> bool:
        del dead_lettered
        return self.acknowledge_offsets(offsets)

    def count_failed(self, attempts: int) -> None:
        pass

    def lent_to(self, running: object) -> None:
        pass

    def is_between(self, _running: object) -> bool:
        return False

    def _end(self, span: int) -> int:
        return min(self.max_offset, self._progress.committed_offset + span)

    def _counted(self, message: ReceivedMessage) -> ReceivedMessage:
        held = self._progress.held
        return message.redelivered(held[1] + 1) if held is not None and held[0] == message.queue_offset else message


def as_seen(progress: Progress, owner: MemberInfo | None, span: Span) -> GroupQueue:
    return GroupQueue(
        progress.group,
        progress.queue,
        progress.committed_offset,
        *span,
        owner,
        acknowledged_ahead=len(progress.acknowledged),
        epoch=progress.epoch,
        paused=progress.paused,
        flow_control=progress.flow_control,
        held_attempts=0 if progress.held is None else progress.held[1],
    )
