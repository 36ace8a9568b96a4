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

import threading
from collections import deque
from collections.abc import Callable

from rmqclient.cluster.groups.bells import ClusterBell
from rmqclient.cluster.groups.journal import JournalSlot
from rmqclient.cluster.groups.locks import VALID_S
from rmqclient.cluster.groups.offsets import Offsets
from rmqclient.cluster.groups.pulling import BATCH, Pulling
from rmqclient.errors import QueueError
from rmqclient.filters import MessageFilter
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageQueue, boottime
from rmqclient.store.threads.logs import Log

_AHEAD_MESSAGES = 8 * BATCH
"""Prefetched messages at which pulling stops; one more answer may follow."""
_AHEAD_BYTES = 8 << 20

_log = Log(__name__)


class ClusterGrant:
    """One queue, granted to one member. Taking is for one thread at a time; the rest is safe for threads.

    ``attempts`` is the journal slot of an ordered queue; None for a queue without an order. ``give_up`` frees the queue
    for other members, after the last commit. ``locked_at`` is the time at which the broker was asked for the lock, in
    ns of CLOCK_BOOTTIME; None for a queue without a lock. ``locked_in`` is :meth:`Offsets.life` at that time.
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
        *,
        locked_at: int | None,
        locked_in: object,
    ) -> None:
        self.queue = queue
        self.group_queue = group_queue
        self.epoch = 0
        self._committed_in = offsets.life(queue)
        self.next_offset = offsets.read(queue)
        self.damaged: list[tuple[int, int, int]] = []
        self.expired = 0
        self.has_unopened = False
        self.paused = False
        self.flow_control = 0
        """The reason for which delivery of this queue is paused; 0 for no reason."""
        self.moved_to: int | None = None
        """The new offset, if the group was moved while the grant was valid."""
        self.max_offset = self.next_offset
        """Queue offset after the last message, from the broker's last answer."""
        self._wanted = wanted
        self._offsets = offsets
        self._bell_of = bell_of
        self._attempts = attempts
        self._give_up = give_up
        self._renewable = locked_at is not None
        self._is_ordered = attempts is not None
        self._locked_in = locked_in
        self._lock = threading.Lock()
        self._committing = threading.Lock()
        self._committed = self.next_offset
        self._commits = 0  # commits sent during the broker's current life
        self._ahead: deque[ReceivedMessage] = deque()
        self._ahead_bytes = 0
        self._pulled_to = self.next_offset
        self._unfinished: dict[int, int] = {}  # queue offset → number of unfinished messages, in the queue's order
        self._armed: ClusterBell | None = None
        self._over = False
        self._renewed_at = locked_at or 0
        self._pulling: Pulling | None = None

    def pull_by(self, pulling: Pulling) -> None:
        """Start pulling."""
        self._pulling = pulling
        pulling.go_on()

    @property
    def committed_offset(self) -> int:
        """The offset below which every message is finished."""
        with self._lock:
            return next(iter(self._unfinished), self.next_offset)

    @property
    def has_more(self) -> bool:
        """Whether a prefetched message can be taken."""
        return bool(self._ahead)

    @property
    def valid(self) -> bool:
        """Whether the grant has not ended, as far as this process knows."""
        return not self._over

    @property
    def lease_is_over(self) -> bool:
        """Whether another member may have the queue: the lock expired here, or the broker may have lost it."""
        return self._renewable and (self.lock_may_be_forgotten or boottime() - self._renewed_at > VALID_S * 1e9)

    @property
    def lock_may_be_forgotten(self) -> bool:
        """Whether the broker of an ordered queue may have been killed since the lock was last renewed."""
        return self._renewable and self._is_ordered and self._offsets.life(self.queue) != self._locked_in

    @property
    def has_room(self) -> bool:
        """Whether more messages may be pulled."""
        return not self._over and len(self._ahead) < _AHEAD_MESSAGES and self._ahead_bytes < _AHEAD_BYTES

    @property
    def last_committed(self) -> int:
        """The offset known to the broker."""
        return self._committed

    @property
    def unfinished(self) -> int:
        """Number of messages that were taken and are not finished."""
        return len(self._unfinished)

    @property
    def ahead(self) -> int:
        """Number of messages that were pulled and not taken."""
        return len(self._ahead)

    @property
    def pulled_at(self) -> float:
        """Monotonic time at which the broker last answered a pull; 0 before the first one."""
        return self._pulling.answered_at if self._pulling is not None else 0.0

    def show(self, flow_control: int) -> None:
        """Set :attr:`flow_control`, which others may read."""
        self.flow_control = flow_control

    def renewed(self, at_ns: int, life: object) -> None:
        """Note a renewal of the lock, asked for at ``at_ns`` of CLOCK_BOOTTIME in this life of the broker."""
        self._renewed_at = max(self._renewed_at, at_ns)
        self._locked_in = life

    def renew(self, lease_ms: int) -> bool:
        """Return :attr:`valid`. The timer thread renews the lock."""
        del lease_ms
        return not self._over

    def end(self) -> None:
        """End without a commit, because another member has the queue or the group was moved."""
        self._over = True
        if self._pulling is not None:
            self._pulling.stop()

    def release(self) -> bool:
        """Commit and free the queue. False if it already has another owner."""
        was_valid = not self._over
        self.end()
        if was_valid and not self.lease_is_over:
            try:
                self._commit()
                self._offsets.flush()
            except (QueueError, OSError) as error:
                _log.warning(
                    "the offset of %s could not be committed: %s; messages since the last commit are delivered again",
                    self.queue, error,
                )  # fmt: skip
        self.drop()
        self._give_up(self)
        return was_valid

    def drop(self) -> None:
        """Forget the attempts of an ordered queue."""
        if self._attempts is not None:
            self._attempts.release()
            self._attempts = None

    def commit(self) -> None:
        """Commit the offset if it changed or may be lost, and the grant is not in doubt. Raises QueueError, OSError."""
        if not self._over and not self.lease_is_over:
            self._commit()

    def commit_soon(self) -> None:
        """As :meth:`commit`, without waiting; does nothing while an earlier one waits for its answer."""
        if self._over or self.lease_is_over or not self._committing.acquire(blocking=False):
            return

        def done(stored: bool) -> None:
            if stored:
                self._note(offset, life)
            self._committing.release()

        try:
            offset, life = self.committed_offset, self._offsets.life(self.queue)
            if self._is_known(offset, life):
                self._committing.release()
            else:
                self._offsets.commit_soon(self.queue, offset, done)
        except BaseException:
            self._committing.release()
            raise

    def _commit(self) -> None:
        with self._committing:  # so that commits arrive in order
            offset, life = self.committed_offset, self._offsets.life(self.queue)
            while not self._is_known(offset, life):
                self._offsets.commit(self.queue, offset)
                self._note(offset, life)

    def _is_known(self, offset: int, life: object) -> bool:
        """Whether the broker has an offset for sure. The first one is committed twice.

        If the first offsets of a group in a topic, for several queues, reach a broker at once, it makes a table for
        each of them and keeps only the last one, but answers success to all. [ConsumerOffsetManager.commitOffset]
        """
        return (offset, life) == (self._committed, self._committed_in) and self._commits != 1

    def _note(self, offset: int, life: object) -> None:
        self._commits = self._commits + 1 if life == self._committed_in else 1
        self._committed, self._committed_in = offset, life

    def arm(self, lane: int) -> bool:
        """Let arriving messages ring the bell of this lane. True if a message can be taken now."""
        self._armed = self._bell_of(lane)
        return bool(self._ahead)

    def pulled(self, messages: list[ReceivedMessage], next_offset: int, max_offset: int) -> None:
        """Take the messages of a pull."""
        size = sum([message.size for message in messages])
        with self._lock:
            self._ahead.extend(messages)
            self._ahead_bytes += size
            self._pulled_to = next_offset
            if not self._ahead:
                self.next_offset = next_offset
        self.max_offset = max(max_offset, next_offset)
        self.has_unopened = self.has_unopened or any(message.unopened is not None for message in messages)
        bell = self._armed
        if messages and bell is not None:
            self._armed = None
            bell.ring()

    def moved(self, next_offset: int) -> None:
        """Skip forwards over expired messages, if no message is unfinished; any other move ends the grant."""
        with self._lock:
            is_idle = not self._ahead and not self._unfinished
            if is_idle and next_offset > self.next_offset:
                self.expired += next_offset - self.next_offset
                self.next_offset = self._pulled_to = next_offset
                return
        self.move_to(next_offset)

    def move_to(self, offset: int) -> None:
        """End the grant; the next one begins at ``offset``."""
        self.moved_to = offset
        self.end()

    def take(self, limit: int, span: int) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages, less than ``span`` above the committed offset."""
        taken = self._begun(limit, self.committed_offset + span)
        if not taken:
            return taken
        found = [message for message in taken if self._wanted.matches(message)]
        if len(found) < len(taken):
            self._finish_others(taken, found)
        if self._pulling is not None:
            self._pulling.go_on()
        return found

    def _begun(self, limit: int, end: int) -> list[ReceivedMessage]:
        """Take up to ``limit`` messages below the queue offset ``end``; they are unfinished from now on."""
        taken: list[ReceivedMessage] = []
        ahead, unfinished = self._ahead, self._unfinished
        with self._lock:  # a message must always be in one of both, or an answer would move the offset over it
            while ahead and len(taken) < limit and ahead[0].queue_offset < end and not self._over:
                taken.append(ahead.popleft())
            if taken:
                self._ahead_bytes -= sum([message.size for message in taken])
                for message in taken:
                    offset = message.queue_offset
                    unfinished[offset] = unfinished.get(offset, 0) + 1
                self.next_offset = ahead[0].queue_offset if ahead else self._pulled_to
        return taken

    def _finish_others(self, taken: list[ReceivedMessage], found: list[ReceivedMessage]) -> None:
        """Finish the taken messages that did not match."""
        wanted = set(map(id, found))
        with self._lock:
            for message in taken:
                if id(message) not in wanted:
                    self._finish(message.queue_offset)

    def begin(self, message: ReceivedMessage) -> bool:
        """Count an attempt of the message at the head of an ordered queue. False if the grant ended or is in doubt."""
        if self._over or self.lease_is_over:
            return False
        if self._attempts is not None:
            self._attempts.begin(message)
        return True

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """Mark a message finished. False if the grant ended."""
        if self._over:
            return False
        with self._lock:
            self._finish(message.queue_offset)
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
        with self._lock:
            for offset in offsets:
                self._finish(offset)
        if self._attempts is not None:
            self._attempts.rest()
        return True

    def give_back(self, offsets: list[int], *, dead_lettered: bool) -> bool:
        """Mark messages finished that were stored elsewhere. Brokers do not count failures."""
        del dead_lettered
        return self.acknowledge_offsets(offsets)

    def count_failed(self, attempts: int) -> None:
        """Do nothing: a cluster does not share counters."""

    def _finish(self, offset: int) -> None:
        left = self._unfinished.get(offset, 0) - 1
        if left > 0:  # other messages of a batch that is one record
            self._unfinished[offset] = left  # keep its position in the dict, which is in the queue's order
        else:
            self._unfinished.pop(offset, None)
