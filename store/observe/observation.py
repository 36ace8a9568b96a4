"""Observation: what one look at a store finds: counters, progress, members, workers, what runs now.

All of it is read without a lock. Its words are not of one moment, but each is whole, and counters never fall. Counters
are as :data:`rmqclient.store.layout.COUNTED` says: a compressed batch is one message, and a message of the retry topic
is counted there.

Times of other processes are ages in seconds. ``None`` stands for a number that nobody tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.rows import Handling, MemberInfo, WorkerStatus


class Queue(NamedTuple):
    """One message queue."""

    queue: MessageQueue
    min_offset: int
    """Of the oldest message that is there."""
    max_offset: int
    """Of the next message; also how many were ever appended."""
    bytes_in: int = 0
    """Bytes of all records that were appended since the runtime file was first built; 0 again after a reboot."""


class GroupQueue(NamedTuple):
    """One group in one message queue. A tuple, because a store may have 16,384 and a look is taken each second."""

    group: str
    """Of a broadcast group: its name, ``|`` and that of the member; see :func:`rmqclient.names.group_and_member`."""
    queue: MessageQueue
    committed_offset: int
    """Every message below it is finished. It counts ``advance_to``, to which the next owner moves a commit that a death
    cut off: those messages are finished, and nobody gets them again."""
    min_offset: int
    """Of the oldest message that is in the queue."""
    max_offset: int
    """Where the queue ends."""
    owner: MemberInfo | None = None
    """The member that has the queue: its process lives, and its lease has not ended. A process that stands still is an
    owner until its lease ends; then others take the queue."""
    epoch: int = 0
    paused: bool = False
    flow_control: int = 0
    """Why the owner takes nothing; :meth:`rmqclient.delivery.process_queue.FlowControl.of_code` knows the words."""
    held_attempts: int = 0
    """Attempts so far of the failed message that an ordered queue waits for, 0 for none."""
    acknowledged_ahead: int = 0
    """Messages above the committed offset that are finished all the same, out of order."""
    in_flight: int = 0
    """Messages that the owner has taken and not finished; 0 without an owner."""
    ready: int = 0
    """Messages that nobody has taken."""
    oldest_stored_ms: int | None = None
    """Store time of the message at the committed offset, in ms since 1970; None without lag, and if it is gone."""
    next_stored_ms: int | None = None
    """Store time of the first message that is ready; None if none is, and if it is gone."""
    delivered: int = 0
    """Messages that members have taken, each time anew."""
    bytes_out: int = 0
    """Bytes of their records."""
    handled: int = 0
    """Finished by a handler that returned, or committed by a consumer that pulls."""
    failed: int = 0
    """Delivery attempts that failed."""
    retried: int = 0
    """Finished here by storing a copy for the next attempt."""
    dead_lettered: int = 0
    """Finished here by storing a dead letter."""
    skipped: int = 0
    """Finished because the group does not want them: tags, filters, damage."""
    lost: int = 0
    """Finished because retention removed them first."""

    @property
    def lag(self) -> int:
        """Messages that are there and not below the committed offset, as RocketMQ's tools count; 0 at least.

        Failed messages count in the group's retry topic once their delay is over, and before that as ``waiting`` of
        the group (:class:`rmqclient.store.observe.summary.Group`).
        """
        return max(0, self.max_offset - max(self.committed_offset, self.min_offset))

    @property
    def out_of_reach(self) -> int:
        """Messages that retention has removed and that are not finished; a member that comes counts them as lost."""
        return max(0, self.min_offset - self.committed_offset)


FOR_GOOD = ("handled", "dead_lettered", "skipped", "lost")
"""Counters by one of which each message leaves its group; one that was retried comes again."""


class Call(NamedTuple):
    """One call of a handler that runs now."""

    group: str
    queue: MessageQueue
    """The queue that the message was taken from, which may be one of the group's retry topic."""
    queue_offset: int
    """Of the first message of the call."""
    last_offset: int
    """Of the last one."""
    pid: int
    age_s: float
    """For how long it has run."""
    member: MemberInfo
    """The member whose thread runs it."""


class Waits(NamedTuple):
    """The messages that wait for their time, those in delay levels included."""

    waiting: int
    """Messages with a delay or a time that wait, rolled ones included."""
    enqueued: int
    """Messages that ever began to wait."""
    next_due_ms: int | None
    """When the next one is due, in ms since 1970; None if none waits or no housekeeper knows."""
    retries: Mapping[str, int]
    """Failed messages that wait for their next attempt, by group; groups without any are not there. Messages whose
    durable step sleeps have not failed, and do not count. If more than 10,000 messages wait in the store, it is an
    estimate by so many of them."""


class Disk(NamedTuple):
    """The log and the file system under it. Offsets are those of the commit log, in bytes."""

    min_offset: int
    published_to: int
    flushed_to: int
    indexed_to: int
    oldest_stored_ms: int | None
    """Store time of the oldest record, in ms since 1970."""
    used_ratio: float
    """Of the file system, 0 to 1."""
    free_bytes: int
    is_full: bool
    """Whether appends are refused."""
    poisoned: int
    """The errno of a failed flush, 0 while all is well."""


class Observation(NamedTuple):
    """One look at a store."""

    at_s: float
    """Seconds on a monotonic clock, for rates."""
    wall_ms: int
    """Wall clock, in ms since 1970."""
    queues: tuple[Queue, ...]
    """Every queue, system topics included, by topic and queue id."""
    group_queues: tuple[GroupQueue, ...]
    """Every group in every queue that it ever had, by group, topic and queue id; without the store's own group."""
    members: tuple[MemberInfo, ...]
    """Every member whose process lives."""
    workers: tuple[WorkerStatus, ...]
    """The workers of every living supervisor, by slot."""
    calls: tuple[Call, ...]
    """What handlers run now, the longest first."""
    handling: tuple[Handling, ...]
    """How long the messages of each handler took; a process adds its times every half second."""
    timer: Waits
    disk: Disk
    worker_restarts: int
    """Workers that supervisors have started again."""
    is_open: bool
    """Whether any process has the store open."""
    has_housekeeper: bool
    """Whether a process flushes, removes old files and delivers what is due."""
