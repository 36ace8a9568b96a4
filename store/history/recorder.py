"""Recorder: every 10 seconds the housekeeper writes down what each group has done since the record before.

It reads the counters that exist anyway, from outside, as ``rmq top`` does, so nothing else pays for it. Nothing is kept
in memory from one record to the next: what the last record ended with stands in the file, beside it. So whoever comes
next goes on from there, and what was counted while nobody wrote stands in the next record.

====================================  ==============================================================================
when                                  then
====================================  ==============================================================================
the counters begin at 0 again         the next record has what was counted since; what was counted between the last
(a reboot: ``counting_epoch``)        record and the reboot is in no record
there is no history yet               it begins with all that was counted, in a store whose oldest message is younger
                                      than a minute, and else with what is counted from now on
a group is removed                    its rows stay, under its name. If it comes back, its counters begin at 0
more groups than ``MOST_GROUPS``, or  those that are gone are forgotten, with their rows, the first to go first. If all
than a head has room for              are there, the newest ones are left out; one that is taken in later begins with
                                      what it does from then on
more topics than a head has room for  the newest groups are left out, with their topics, as above
the wall clock jumps                  nothing is removed, and nothing counted twice: records are ordered by number. The
                                      first record after a clock was set back begins when it ends
====================================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rmqclient.store import clock, layout
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.files.file_lock import HISTORY_BYTE, LockFile
from rmqclient.store.history.rings import CLASSES, COUNTERS, SPANS_MS, Head, HistoryFile, Known, Record, Row, sum_of
from rmqclient.store.observe.observation import Queue
from rmqclient.store.observe.reading import AGES_READ, Reading
from rmqclient.store.observe.summary import Group, group_of, summaries

MOST_GROUPS = 1_024
_LOCK_TIMEOUT_S = 1.0
_YOUNG_MS = 60_000


class Recorder:
    """Writes the history of one store; :meth:`record` may be called by any process, and by several in turns."""

    def __init__(self, root: Path, lock: LockFile, *, wall_ms: Callable[[], int] = clock.wall_ms) -> None:
        self._root = root
        self._lock = lock
        self._wall_ms = wall_ms

    def record(self) -> None:
        """Write one record. Raises StoreBusy while another process does, OSError."""
        with (
            self._lock.held(HISTORY_BYTE, _LOCK_TIMEOUT_S),
            HistoryFile(self._root, writable=True) as file,
            Reading(str(self._root)) as reading,
        ):
            look = _Look(reading, self._wall_ms())
            head = file.head()
            if head is None:
                file.clear()
                head = look.first_head()
            file.append(head, 0, look.record(head))
            _sum_up(file, head)
            reach(CrashPoint.HISTORY_APPENDED)
            while not file.write_head(head):
                _make_room(head, look.groups)
            reach(CrashPoint.HISTORY_WRITTEN)


class _Look:
    """What the counters say now."""

    def __init__(self, reading: Reading, wall_ms: int) -> None:
        self._reading = reading
        self._wall_ms = wall_ms
        self._epoch = reading.shared.word("counting_epoch")
        self._queues: dict[str, list[Queue]] = {}
        self.groups = {each.group: each for each in summaries(reading.group_queues(ages=AGES_READ), ())}
        for queue in reading.queues():  # behind the groups: what a group has finished was stored before
            self._queues.setdefault(queue.queue.topic, []).append(queue)
        self._classes = {name: [0] * (2 * CLASSES) for name in self.groups}
        for each in reading.handling():
            times = self._classes.get(group_of(each.group), [])
            ran = map(int.__add__, each.handled.counts, each.failed.counts)
            times[:] = map(int.__add__, times, (*each.waited.counts, *ran))

    def first_head(self) -> Head:
        """Return the head of a store without a history."""
        oldest_ms = self._reading.disk().oldest_stored_ms
        is_young = oldest_ms is None or 0 <= self._wall_ms - oldest_ms < _YOUNG_MS
        began_ms = oldest_ms if is_young and oldest_ms is not None else self._wall_ms
        head = Head(sequence=0, ended_ms=began_ms, epoch=self._epoch, is_short=not is_young)
        if not is_young:
            self._take_in(head)
        return head

    def record(self, head: Head) -> Record:
        """Return what was counted since ``head``, which then says that it is counted."""
        if head.epoch != self._epoch:
            for known in head.groups.values():
                known.counts, known.classes = [0] * len(COUNTERS), [0] * (2 * CLASSES)
        head.sequence += 1
        self._take_in(head)
        published = self._published(head)
        rows = dict[int, Row]()
        for name, group in self.groups.items():
            if name in head.groups:
                known = head.groups[name]
                row = self._row(group, known, sum(published.get(topic, 0) for topic in group.topics))
                if not row.is_idle:
                    rows[known.number] = row
        for name, known in head.groups.items():
            if name not in self.groups:
                known.counts = [0] * len(COUNTERS)
        began_ms = min(head.ended_ms, self._wall_ms)
        head.ended_ms, head.epoch = self._wall_ms, self._epoch
        return Record.of(head.rings[0].number, began_ms, self._wall_ms, rows)

    def _take_in(self, head: Head) -> None:
        """Let the head know the groups of the store, as far as there is room."""
        for name, group in self.groups.items():
            if name not in head.groups and (len(head.groups) < MOST_GROUPS or _forget_one(head, self.groups)):
                known = head.groups[name] = Known(head.next_group, 0)
                head.next_group += 1
                if head.is_short:  # it may have been left out before: what it did then has no place
                    known.counts, known.classes = _counts_of(group), list(self._classes[name])
            if name in head.groups:
                head.groups[name].seen = head.sequence
        head.is_short = len(head.groups.keys() & self.groups.keys()) < len(self.groups)

    def _published(self, head: Head) -> dict[str, int]:
        """Return how many messages were stored in each topic that a known group consumes."""
        before = head.topics
        topics = sorted(_topics_of(head, self.groups))
        head.topics = {topic: sum(each.max_offset for each in self._queues.get(topic, ())) for topic in topics}
        return {
            topic: max(0, count - (before[topic] if topic in before else self._stored_before(topic, head)))
            for topic, count in head.topics.items()
        }

    def _stored_before(self, topic: str, head: Head) -> int:
        """Return how many messages a topic had when the last record ended, in which nobody consumed it."""
        queues = self._queues.get(topic, [])
        is_new = all(
            each.min_offset == 0 and (self._reading.records.stored_ms(each.queue, 0) or self._wall_ms) >= head.ended_ms
            for each in queues
        )
        return 0 if is_new else sum(each.max_offset for each in queues)

    def _row(self, group: Group, known: Known, published: int) -> Row:
        counts, classes = _counts_of(group), self._classes[group.group]
        done, times = _growth(known.counts, counts), _growth(known.classes, classes)
        known.counts, known.classes = counts, list(classes)
        oldest_s = int(group.oldest_s(self._wall_ms) or 0)
        waited, ran = tuple(times[:CLASSES]), tuple(times[CLASSES:])
        return Row._make((published, *done, group.lag, oldest_s, waited, ran))


def _counts_of(group: Group) -> list[int]:
    return [sum(getattr(each, counter) for each in group.queues) for counter in COUNTERS]


def _growth(before: list[int], now: list[int]) -> list[int]:
    """Return by how much counters have grown; 0 of one that fell, as when a member of a broadcast group is removed."""
    return [max(0, count - former) for former, count in zip(before, now, strict=True)]


def _sum_up(file: HistoryFile, head: Head) -> None:
    """Write the records of the coarser rings whose time is over."""
    for level in range(1, len(layout.HISTORY_RINGS)):
        end, span_ms = head.rings[level], SPANS_MS[level]
        unsummed = file.records(head, level - 1, end.summed)
        while unsummed and (part := _of_one_span(unsummed, span_ms)) < len(unsummed):
            summed, unsummed = unsummed[:part], unsummed[part:]
            first, last = summed[0], summed[-1]
            began_ms = min(first.began_ms, last.ended_ms)
            rows = sum_of(summed)
            file.append(head, level, Record.of(end.number, began_ms, last.ended_ms, rows, first.number, last.number))
            end.summed = last.number + 1


def _of_one_span(records: list[Record], span_ms: int) -> int:
    """Return how many of the first records end in the same minute, or whatever the span is."""
    span = (records[0].ended_ms - 1) // span_ms
    return next((number for number, each in enumerate(records) if (each.ended_ms - 1) // span_ms != span), len(records))


def _forget_one(head: Head, there: dict[str, Group]) -> bool:
    """Forget the group that is in the store no more and was there least recently; False if all are there."""
    gone = [name for name in head.groups if name not in there]
    if gone:
        del head.groups[min(gone, key=lambda name: head.groups[name].seen)]
    return bool(gone)


def _make_room(head: Head, there: dict[str, Group]) -> None:
    """Forget the groups that are gone, or else leave out the newest tenth of those that are there, with their topics.

    The last group that is left out leaves an empty head, for which there is always room.
    """
    gone = [name for name in head.groups if name not in there]
    newest = sorted(head.groups, key=lambda name: head.groups[name].number)
    left_out = newest[-(len(newest) // 10 or 1) :]
    for name in gone or left_out:
        del head.groups[name]
    topics = _topics_of(head, there)
    head.topics = {topic: count for topic, count in head.topics.items() if topic in topics}
    head.is_short |= not gone


def _topics_of(head: Head, there: dict[str, Group]) -> set[str]:
    """Return the topics that a known group consumes."""
    return {topic for name in head.groups.keys() & there.keys() for topic in there[name].topics}
