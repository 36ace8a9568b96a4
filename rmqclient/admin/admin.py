"""Admin: what the command line shows of a backend and changes in it, without a producer or consumer of its own."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from rmqclient.admin.infos import (
    CleanInfo,
    MemberAssignment,
    QueueInfo,
    QueueLag,
    SeekInfo,
    Subscription,
    TopicInfo,
    assignment_of,
    lags_of,
    subscriptions_of,
)
from rmqclient.backend.group_protocols import Move
from rmqclient.local.backend import store_of
from rmqclient.names import RETRY_PREFIX, check_group, check_queue_count, check_topic, group_and_member
from rmqclient.opening import Place, open_backend
from rmqclient.store import MemberInfo, MessageQueue
from rmqclient.store.closing import Closing
from rmqclient.store.errors import (
    InvalidName,
    OffsetOutOfRange,
    QueueOwned,
    TopicNotWritable,
    UnknownGroup,
    UnknownTopic,
)
from rmqclient.store.observe.observation import GroupQueue
from rmqclient.store.observe.summary import Group
from rmqclient.store.settings.config_file import READABLE, WRITABLE
from rmqclient.store.waiting.transaction_log import GROUP as TRANSACTION_GROUP

Position: TypeAlias = Literal["earliest", "latest"] | int | datetime.datetime
"""An end of a queue, a queue offset, or a time."""

_PERMS = {"rw": READABLE | WRITABLE, "r": READABLE, "w": WRITABLE, "none": 0}


class Admin(Closing):
    """Shows and changes topics and groups of one backend; a context manager.

    ``place`` is the directory of a store, an open store, or a backend. A missing store is made only with ``create``.
    ``author`` stands in the marks of what is changed, None for the user of this process. Raises what
    :func:`rmqclient.store.open_store` raises.
    """

    def __init__(self, place: Place, *, create: bool = False, author: str | None = None) -> None:
        self._backend = open_backend(place, create=create)
        self._author = author

    def close(self) -> None:
        """Leave the backend. Closing twice does nothing."""
        self._backend.close()

    # --- topics ------------------------------------------------------------------------------------

    def topics(self) -> list[TopicInfo]:
        """Return every topic, sorted by name."""
        return [self.topic(name) for name in self._backend.topics.names()]

    def topic(self, name: str) -> TopicInfo:
        """Return one topic. Raises UnknownTopic."""
        read = set(self._backend.topics.read_queues(name))
        try:
            written = set(self._backend.topics.write_queues(name))
        except TopicNotWritable:
            written = set()
        queues = tuple(
            QueueInfo(
                queue.queue_id, *self._backend.queues.span(queue), queue.broker_name, queue in written, queue in read
            )
            for queue in self._backend.topics.queues(name)
        )
        messages = sum(queue.max_offset - queue.min_offset for queue in queues)
        return TopicInfo(name, queues, messages, self._backend.topics.cleanup_policy(name))

    def create_topic(self, name: str, queue_count: int, cleanup_policy: str | None = None) -> TopicInfo:
        """Make a topic, or return the one there is. Raises InvalidName, ValueError, TableFull, ConfigMismatch."""
        self._backend.topics.create(check_topic(name), check_queue_count(queue_count), cleanup_policy)
        return self.topic(name)

    def update_topic(
        self,
        name: str,
        queue_count: int | None = None,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: Literal["rw", "r", "w", "none"] | None = None,
    ) -> TopicInfo:
        """Give a topic more queues, or say how many of them are written and read, or whether the topic is at all.

        New messages go to the first ``write_queues``, and consumers get messages from the first ``read_queues``; either
        may be raised, which makes queues. Running producers and consumers follow within moments. Raises UnknownTopic,
        TableFull, and ValueError for a ``queue_count`` below the queues that the topic has.
        """
        store = store_of(self._backend, "a change of a topic")
        have = len(self._backend.topics.queues(check_topic(name)))
        if queue_count is not None and check_queue_count(queue_count) < have:
            raise ValueError(
                f"topic {name!r} has {have} queues, asked for {queue_count}: a queue with messages cannot be taken "
                f"away; write to fewer (--write-queues {queue_count}), and read fewer when the others are empty "
                f"(--read-queues {queue_count})"
            )
        store.topics.create(name, have)  # if it was removed while a producer went on sending
        config = store.topics.configs()[name]
        read = read_queues or queue_count or config.read_queue_count
        written = write_queues or queue_count or config.write_queue_count
        config = replace(config, read_queue_count=check_queue_count(read), write_queue_count=check_queue_count(written))
        if perm is not None:
            config = replace(config, perm=config.perm & ~_PERMS["rw"] | _PERMS[perm])
        store.topics.configure(name, config)
        return self.topic(name)

    def remove_topic(self, name: str) -> None:
        """Forget a topic; its messages stay in the log until retention removes them, hidden. Raises UnknownTopic.

        A topic of this name that is made again goes on behind them.
        """
        store = store_of(self._backend, "a removal of a topic")
        self._backend.topics.queues(check_topic(name, reserved=True))
        store.topics.remove(name)

    def clean(self, reserved_hours: int | None = None) -> CleanInfo:
        """Remove every commit log file that is older than the reserved time, now and by the clock as it stands.

        ``reserved_hours`` replaces the store's setting. The newest file always stays. Raises ValueError.
        """
        store = store_of(self._backend, "a removal of old files")
        removed = 0
        while passed := store.retention.clean(requested=True, reserved_hours=reserved_hours):
            removed += len(passed)
        return CleanInfo(removed, removed * store.config.commit_log_file_bytes, store.state.min_offset)

    def prefer_as_housekeeper(self) -> None:
        """Make this process the housekeeper, as a supervisor, for as long as it has the store open.

        Raises StoreClosed, and ValueError for a store opened without housekeeping.
        """
        self._backend.check_usable()
        store = store_of(self._backend, "a housekeeper")
        if store.housekeeper is None:
            raise ValueError(f"the store in {store.root} was opened with housekeeping=False")
        store.housekeeper.prefer()

    # --- groups ------------------------------------------------------------------------------------

    def consumers(self) -> list[MemberInfo]:
        """Return every member that consumes; the other members are transaction producers."""
        return self._backend.groups.members()

    def groups(self) -> list[Group]:
        """Return every group that has consumed or consumes, sorted by name; a broadcast group is one."""
        return self._backend.groups.all()

    def lag(self, group: str) -> list[QueueLag]:
        """Return the queues of a group, sorted by topic and queue id; empty for a group that never consumed.

        For a broadcast group: one row per queue and member, including former members.
        """
        found = self._group(group)
        return [] if found is None else lags_of(found.queues, waiting=found.waiting or 0)

    def subscriptions(self, group: str) -> list[Subscription]:
        """Return what a group subscribes to, as :func:`subscriptions_of`. Raises InvalidName."""
        found = self._group(group)
        return [] if found is None else subscriptions_of(found)

    def assignment(self, group: str) -> list[MemberAssignment]:
        """Return which member has which queues of a group, as :func:`assignment_of`; empty for an unknown group.

        A member without a queue is a spare. Raises InvalidName.
        """
        found = self._group(group)
        return [] if found is None else assignment_of(found)

    # --- changing groups ---------------------------------------------------------------------------

    def seek(
        self, group: str, topic: str, to: Position, *, queue_id: int | None = None, dry_run: bool = False
    ) -> list[SeekInfo]:
        """Move a group in all queues of a topic, or in one: to either end, to a queue offset, or to a time.

        Safe while members are at work: they lose the queues and take them again at once, and what they had in flight
        is not acknowledged into the new position. In a broadcast group every member is moved. A group that was never
        seen begins there. ``dry_run`` moves nothing and returns what would be moved.

        Raises InvalidName, UnknownTopic, OffsetOutOfRange for an offset that one of the queues does not have,
        ValueError for a time without a zone: nothing is moved then. StoreBusy, TableFull: some queues may be moved and
        others not; seek again. StoreFull: all are moved, and the disk does not know of it yet.
        """
        _check_movable(group)
        targets = {queue: self._position(queue, to) for queue in self._queues(topic, queue_id)}
        return self._move(group, targets, dry_run=dry_run, at_ms=_time_of(to))

    def shift(
        self, group: str, topic: str, by: int, *, queue_id: int | None = None, dry_run: bool = False
    ) -> list[SeekInfo]:
        """Move a group by so many messages in each queue, back if ``by`` is negative; at most to an end of the queue.

        A group that was never seen is shifted from the oldest message. Otherwise as :meth:`seek`.
        """
        _check_movable(group)
        targets = {}
        for queue in self._queues(topic, queue_id):
            low, high = self._backend.queues.span(queue)
            stands = self._backend.groups.committed_offset(group, queue)
            targets[queue] = min(max((low if stands is None else stands) + by, low), high)
        return self._move(group, targets, dry_run=dry_run)

    def place(self, group: str, offsets: Mapping[tuple[str, int], int], *, dry_run: bool = False) -> list[SeekInfo]:
        """Move a group to a queue offset in each of some queues, given by topic and queue id. As :meth:`seek`."""
        _check_movable(group)
        targets = {
            queue: self._position(queue, offset)
            for (topic, queue_id), offset in offsets.items()
            for queue in self._queues(topic, queue_id)
        }
        return self._move(group, targets, dry_run=dry_run)

    def clone(self, source: str, target: str, *, topic: str | None = None, dry_run: bool = False) -> list[SeekInfo]:
        """Move a group to where another one stands, in all queues of that one or in those of a topic. As :meth:`seek`.

        What the other has finished out of order is delivered again. Raises UnknownGroup, too.
        """
        _check_movable(target)
        stands = {
            each.queue: max(each.committed_offset, each.min_offset)
            for each in self._queues_of(source)
            if each.group == source
            and topic in (None, each.queue.topic)
            and not each.queue.topic.startswith(RETRY_PREFIX)
        }
        if not stands:
            raise UnknownGroup(f"group {source!r} never consumed {topic or 'a topic'}: there is nothing to clone")
        return self._move(target, stands, dry_run=dry_run)

    def _move(
        self, group: str, targets: Mapping[MessageQueue, int], *, dry_run: bool, at_ms: int | None = None
    ) -> list[SeekInfo]:
        names = sorted({each.group for each in self._queues_of(group, targets)}) or [group]
        moved = [self._seek_info(name, queue, target) for name in names for queue, target in targets.items()]
        if not dry_run:
            move = Move({(name, queue): target for name in names for queue, target in targets.items()}, at_ms)
            self._backend.groups.seek(move)
            self._mark("seek", group, move.in_words)
        return moved

    def remove_group(self, group: str, *, dry_run: bool = False) -> list[QueueLag]:
        """Forget a group that nobody runs, with its offsets, settings and waiting retries; return where it stood.

        Dead letters stay. A consumer that joins under the name later is a new group. ``dry_run`` forgets nothing.
        Raises InvalidName, UnknownGroup, and QueueOwned while members run.
        """
        _check_movable(group)
        members = self._backend.groups.members(group)
        if members:
            raise QueueOwned(
                f"group {group!r} has {len({each.client_id for each in members})} members that run, such as "
                f"{members[0].client_id!r}: stop them first"
            )
        stood = self.lag(group)
        if not stood:
            raise UnknownGroup(f"group {group!r} never consumed anything: see `rmq group ls`")
        if not dry_run:
            self._backend.groups.remove(group)
        return stood

    def pause(
        self,
        group: str,
        topic: str | None = None,
        *,
        queue_id: int | None = None,
        reason: str = "",
        author: str | None = None,
    ) -> list[QueueLag]:
        """Let a group take nothing more; what is in flight goes on. Returns the queues as they are then.

        The queues are all that the group ever had, or those of one topic, or one of these. The pause holds until
        :meth:`resume`, whichever process ends or is killed, and is forgotten when the machine starts anew. ``reason``
        stands in the store's marks, beside ``author``, or that of this admin. Raises InvalidName, UnknownGroup,
        StoreBusy.
        """
        paused = self._set_paused(group, topic, queue_id, paused=True)
        self._mark("pause", group, _of(topic, queue_id, reason), author)
        return paused

    def resume(
        self, group: str, topic: str | None = None, *, queue_id: int | None = None, author: str | None = None
    ) -> list[QueueLag]:
        """Let a group take messages again, at once. Raises as :meth:`pause`."""
        resumed = self._set_paused(group, topic, queue_id, paused=False)
        self._mark("resume", group, _of(topic, queue_id), author)
        return resumed

    # --- inside ------------------------------------------------------------------------------------

    def _mark(self, kind: str, group: str, words: str, author: str | None = None) -> None:
        """Say in the marks of a store what was done; a cluster has none."""
        if self._backend.store is not None:
            self._backend.store.marks.write(kind, group, words, author=author or self._author)

    def _group(self, group: str) -> Group | None:
        return self._backend.groups.find(check_group(group))

    def _queues_of(self, group: str, queues: Collection[MessageQueue] | None = None) -> list[GroupQueue]:
        """Return how a group stands, its broadcast members included, in all queues or in some."""
        found = self._group(group)
        return [each for each in (found.queues if found else ()) if queues is None or each.queue in queues]

    def _queues(self, topic: str, queue_id: int | None) -> list[MessageQueue]:
        queues = self._backend.topics.queues(topic)
        if queue_id is None:
            return queues
        wanted = [queue for queue in queues if queue.queue_id == queue_id]
        if not wanted:
            raise UnknownTopic(
                f"queue {queue_id} of topic {topic!r} does not exist: it has queues 0 to {queues[-1].queue_id}"
            )
        return wanted

    def _position(self, queue: MessageQueue, to: Position) -> int:
        low, high = self._backend.queues.span(queue)
        if isinstance(to, datetime.datetime):
            if to.utcoffset() is None:
                raise ValueError(f"{to!r} names no time zone: write datetime(..., tzinfo=UTC), or .astimezone()")
            return self._backend.queues.offset_by_time(queue, round(to.timestamp() * 1000))
        if isinstance(to, int):
            if not low <= to <= high:
                raise OffsetOutOfRange(
                    f"offset {to}: queue {queue.queue_id} of {queue.topic!r} has {low} to {high}, where it ends; give "
                    "one of these, or earliest or latest"
                )
            return to
        if to not in ("earliest", "latest"):
            raise ValueError(f"to={to!r}: give 'earliest', 'latest', a queue offset or a datetime")
        return low if to == "earliest" else high

    def _seek_info(self, name: str, queue: MessageQueue, target: int) -> SeekInfo:
        group, member = group_and_member(name)
        from_offset = self._backend.groups.committed_offset(name, queue)
        return SeekInfo(
            group=group,
            topic=queue.topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            from_offset=from_offset,
            to_offset=target,
            member=member,
        )

    def _set_paused(self, group: str, topic: str | None, queue_id: int | None, *, paused: bool) -> list[QueueLag]:
        meant = [
            each
            for each in self._queues_of(group)
            if topic in (None, each.queue.topic) and queue_id in (None, each.queue.queue_id)
        ]
        if not meant:
            of_topic = f" topic {topic!r}" if queue_id is None else f" queue {queue_id} of {topic!r}"
            where = " anything" if topic is None else of_topic
            raise UnknownGroup(f"group {group!r} never consumed{where}: see `rmq group ls`")
        names = {(each.group, each.queue) for each in meant}
        self._backend.groups.set_paused(names, paused=paused)
        return lags_of([each for each in self._queues_of(group) if (each.group, each.queue) in names])


def _of(topic: str | None, queue_id: int | None, reason: str = "") -> str:
    """Return what a pause is of, and why, as marks say it."""
    where = f"{topic or ''}{'' if queue_id is None else f' {queue_id}'}"
    return ": ".join(filter(None, (where, reason)))


def _check_movable(group: str) -> None:
    if check_group(group) == TRANSACTION_GROUP:
        raise InvalidName(f"group {group!r} says how far transactions are: moved back, it would send messages twice")


def _time_of(to: Position) -> int | None:
    """Return the time in ms that a position stands for: 0 for the begin, -1 for the end; None for a queue offset."""
    if isinstance(to, datetime.datetime):
        return round(to.timestamp() * 1000)
    return {"earliest": 0, "latest": -1}.get(str(to))
