"""Grant: one queue of a member, with its prefetched and its unfinished messages.

A broker stores one number for a group's progress in a queue: the offset of the oldest unfinished message. It is
computed here while messages finish in any order, and committed every second, when the queue is released, and when the
consumer closes; again if the broker may have lost it. After a kill, messages that were finished since the last commit,
or above the oldest unfinished one, are delivered again.

The grant ends when the broker gives the lock to another member, when the group is moved, or when it is released. It is
in doubt if the lock was not renewed for 30 s: then no message is taken and no offset committed. An ordered one is in
doubt also from a loss of the connection to the broker until the lock is renewed: a killed broker loses its locks, and
may give the queue to another member as soon as it is back.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqclient.cluster.groups.bells import ClusterBell
from rmqclient.cluster.groups.journal import JournalSlot
from rmqclient.cluster.groups.locks import HeldLock
from rmqclient.cluster.groups.offsets import Offsets, QueueOffset
from rmqclient.cluster.groups.prefetch import Prefetch
from rmqclient.cluster.groups.pulling import Pulling
from rmqclient.errors import QueueError
from rmqclient.filters import MessageFilter
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageQueue
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class ClusterGrant:
    """One queue, granted to one member. Taking is for one thread at a time; the rest is safe for threads.

    ``attempts`` is the journal slot of an ordered queue; None for a queue without an order. ``lock`` is None for a
    member of a broadcast group. ``give_up`` frees the queue for other members, after the last commit.
    """

    def __init__(
        self,
        queue: MessageQueue,
        group_queue: int,
        wanted: MessageFilter,
        offsets: Offsets,
        bell_of: Callable[[int], ClusterBell],
        attempts: JournalSlot | None,
        give_up: Callable[[ClusterGrant], None],
        lock: HeldLock | None,
    ) -> None:
        life, offset = offsets.life(queue), offsets.read(queue)
        self.queue = queue
        self.group_queue = group_queue
        self.epoch = 0
        self.damaged: list[tuple[int, int, int]] = []
        self.expired = 0
        self.paused = False
        self.flow_control = 0
        """The reason for which delivery of this queue is paused; 0 for no reason."""
        self.moved_to: int | None = None
        """The new offset, if the group was moved while the grant was valid."""
        self.lock = lock
        self.messages = Prefetch(offset)
        self.offset = QueueOffset(
            queue,
            offsets,
            (offset, life),
            lambda: self.messages.finished_to,
            lambda: not (self._over or self.lease_is_over),
        )
        self.pulling: Pulling | None = None
        self._wanted = wanted
        self._offsets = offsets
        self._bell_of = bell_of
        self._attempts = attempts
        self._give_up = give_up
        self._over = False

    def pull_by(self, pulling: Pulling) -> None:
        """Start pulling."""
        self.pulling = pulling
        pulling.go_on()

    # --- the protocol Grant -----------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """Queue offset of the next message."""
        return self.messages.next_offset

    @property
    def committed_offset(self) -> int:
        """The offset below which every message is finished; it is committed within a second."""
        return self.messages.finished_to

    @property
    def max_offset(self) -> int:
        """Queue offset after the last message, from the broker's last answer."""
        return self.messages.max_offset

    @property
    def has_unopened(self) -> bool:
        """Whether a compressed batch was pulled that could not be opened."""
        return self.messages.has_unopened

    @property
    def has_more(self) -> bool:
        """Whether a prefetched message can be taken."""
        return self.messages.ahead > 0

    @property
    def valid(self) -> bool:
        """Whether the grant has not ended, as far as this process knows."""
        return not self._over

    @property
    def lease_is_over(self) -> bool:
        """Whether another member may have the queue."""
        return self.lock is not None and self.lock.is_in_doubt

    def show(self, flow_control: int) -> None:
        """Set :attr:`flow_control`, which others may read."""
        self.flow_control = flow_control

    def release(self) -> bool:
        """Commit and free the queue. False if it already has another owner."""
        was_valid = not self._over
        self.end()
        if was_valid and not self.lease_is_over:
            try:
                self.offset.commit_last()
                self._offsets.flush()
            except (QueueError, OSError) as error:
                _log.warning(
                    "the offset of %s could not be committed: %s; messages since the last commit are delivered again",
                    self.queue, error,
                )  # fmt: skip
        self.drop()
        self._give_up(self)
        return was_valid

    def arm(self, lane: int) -> bool:
        """Let arriving messages ring the bell of this lane. True if a message can be taken now."""
        return self.messages.arm(self._bell_of(lane))

    def take(self, limit: int, span: int) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages, less than ``span`` above the committed offset."""
        if self._over:
            return []
        taken = self.messages.take(limit, span)
        if not taken:
            return taken
        found = [message for message in taken if self._wanted.matches(message)]
        if len(found) < len(taken):
            wanted = set(map(id, found))
            self.messages.finish(message.queue_offset for message in taken if id(message) not in wanted)
        if self.pulling is not None:
            self.pulling.go_on()
        return found

    def begin(self, message: ReceivedMessage) -> bool:
        """Count an attempt of the message at the head of an ordered queue. False if the grant ended or is in doubt."""
        if self._over or self.lease_is_over:
            return False
        if self._attempts is not None:
            self._attempts.note(message)
        return True

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """Mark a message finished. False if the grant ended."""
        if self._over:
            return False
        self.messages.finish((message.queue_offset,))
        if self._attempts is not None:
            self._attempts.rest()
        return True

    def finish(self, messages: list[ReceivedMessage]) -> list[int]:
        """Return the queue offsets of finished messages, for :meth:`acknowledge_offsets`."""
        return [message.queue_offset for message in messages]

    def acknowledge_offsets(self, offsets: list[int]) -> bool:
        """Mark the messages at these queue offsets finished. False if the grant ended."""
        if self._over:
            return False
        self.messages.finish(offsets)
        if self._attempts is not None:
            self._attempts.rest()
        return True

    def give_back(self, offsets: list[int], *, dead_lettered: bool) -> bool:
        """Mark messages finished that were stored elsewhere. Brokers do not count failures."""
        del dead_lettered
        return self.acknowledge_offsets(offsets)

    def lent_to(self, running: object) -> None:
        """Return None: the next owner of the queue gets its running messages a second time."""
        del running

    def is_between(self, running: object) -> bool:
        """Return False: nobody asks what runs when the queue is released."""
        del running
        return False

    def count_failed(self, attempts: int) -> None:
        """Do nothing: a cluster does not share counters."""

    # --- its end ------------------------------------------------------------------------------------

    def end(self) -> None:
        """End without a commit, because another member has the queue or the group was moved."""
        self._over = True
        if self.pulling is not None:
            self.pulling.stop()

    def moved(self, next_offset: int) -> None:
        """Skip forwards over expired messages, if no message is unfinished; any other move ends the grant."""
        skipped = self.messages.skip_to(next_offset)
        if skipped:
            self.expired += skipped
        else:
            self.move_to(next_offset)

    def move_to(self, offset: int) -> None:
        """End the grant; the next one begins at ``offset``."""
        self.moved_to = offset
        self.end()

    def drop(self) -> None:
        """Forget the attempts of an ordered queue."""
        if self._attempts is not None:
            self._attempts.release()
            self._attempts = None
