"""Issues: the dead letters of a store by what failed and where, however many there are.

A dead letter does not change, so each is read once, the newest first, and 12 bytes of it are kept: when it failed, and
the number of its issue. A request reads for a second at most; what is left is read by the next one, and counted.
"""

from __future__ import annotations

import heapq
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rmqclient.backend import Backend
from rmqclient.failures.dead_letters import DeadLetter, Issue, Selection, settled_of
from rmqclient.filters.tag import parse_tags
from rmqclient.names import DEAD_LETTER_PREFIX
from rmqclient.store import MessageQueue
from rmqclient.store.observe.config import settled_letters

BINS = 24
"""Columns of a sparkline."""
_NAMED = 4
"""Exceptions that a chart names."""
READ_AT_MOST = 2_000
"""Dead letters that one page reads to find those with a text, a key or a topic."""
_READ_S = 1.0
_READ_AT_ONCE = 32
_EVERY_TAG = parse_tags("*")
_UNREAD = -1
_END_OF_TIME = 1 << 63


class Known(NamedTuple):
    """An issue of a group, and its dead letters that were neither replayed nor purged."""

    group: str
    issue: Issue
    text: str
    """Of the last exception."""
    letters: int
    """How many there are."""
    first_ms: int
    last_ms: int
    bins: tuple[int, ...]
    """How many failed in each part of the period, the oldest first."""


class Failing(NamedTuple):
    """How many dead letters an exception made in each part of a period, the oldest first."""

    error: str
    """Its class; empty for dead letters without a history, ``others`` for what is not among the most frequent."""
    bins: tuple[int, ...]

    @property
    def letters(self) -> int:
        """How many in the whole period."""
        return sum(self.bins)


def by_exception(issues: Iterable[Known]) -> list[Failing]:
    """Return how often each exception made a dead letter, over time, the most frequent first, four and the others."""
    bins: dict[str, tuple[int, ...]] = {}
    for issue in issues:
        bins[issue.issue.error] = _added(bins.get(issue.issue.error, ()), issue.bins)
    found = sorted((Failing(*each) for each in bins.items()), key=lambda each: (-each.letters, each.error))
    rest: tuple[int, ...] = ()
    for each in found[_NAMED:]:
        rest = _added(rest, each.bins)
    return [*found[:_NAMED], *([Failing("others", rest)] if rest else [])]


def _added(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(int.__add__, one, other)) if one else other


class At(NamedTuple):
    """Where a dead letter stands. Pages go on below one of these."""

    stored_ms: int
    queue_id: int
    offset: int
    group: str


class Page(NamedTuple):
    """Some dead letters, the newest first."""

    shown: list[DeadLetter]
    next: At | None
    """The last one that was looked at; None if there are no more."""


@dataclass(slots=True)
class _Queue:
    """A queue of dead letters; element 0 of the arrays is the one at offset ``low``."""

    queue: MessageQueue
    low: int
    read_to: int
    """Everything below it, and not below ``low``, is to be read."""
    stored: array[int] = field(default_factory=lambda: array("q"))
    issue: array[int] = field(default_factory=lambda: array("i"))

    @property
    def group(self) -> str:
        return self.queue.topic.removeprefix(DEAD_LETTER_PREFIX)


class Issues:
    """The dead letters of one store by issue; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[MessageQueue, _Queue] = {}
        self._numbers: dict[tuple[str, Issue], int] = {}
        self._texts: dict[int, tuple[int, str]] = {}
        self._settled: dict[str, set[int]] = {}
        self._journal: tuple[int, int] | None = None

    def read(self, backend: Backend) -> int:
        """Read what is new, and older ones for a second at most; return how many are still to be read."""
        end = time.monotonic() + _READ_S
        with self._lock:
            self._read_journal(backend.directory)
            queues = [each for topic in backend.topics.names() if topic.startswith(DEAD_LETTER_PREFIX)
                      for each in backend.topics.queues(topic)]  # fmt: skip
            for gone in self._queues.keys() - set(queues):
                del self._queues[gone]
            known = [self._brought_up_to_date(backend, each) for each in queues]
            while unread := [each for each in known if each.read_to > each.low]:
                for each in unread:  # in turn: a group with many hides no other
                    if time.monotonic() > end:
                        return sum(each.read_to - each.low for each in unread)
                    begin = max(each.low, each.read_to - _READ_AT_ONCE)
                    self._read(backend, each, begin, each.read_to)
                    each.read_to = begin
            return 0

    def known(self, wanted: Selection, group: str = "", error: str = "") -> list[Known]:
        """Return the issues of a period, the latest first; of one group, or whose class or text has ``error``."""
        with self._lock:
            names = {number: name for name, number in self._numbers.items() if self._has(number, name, group, error)}
            found: dict[int, list[int]] = {}
            for each in self._queues.values():
                if any(name == each.group for name, _ in names.values()):
                    for _, stored, number in self._of(each, wanted):
                        if number in names:
                            found.setdefault(number, []).append(stored)
            # All have the same period, so that they can be compared, and added.
            begin = wanted.since_ms or min(map(min, found.values()), default=0)
            end = (wanted.until_ms or int(time.time() * 1000)) + 1
            rows = [self._known(names[number], number, times, begin, end) for number, times in found.items()]
        return sorted(rows, key=lambda row: -row.last_ms)

    def damaged(self, groups: Collection[str]) -> int:
        """Return how many of what was read of groups cannot be read, because their records are damaged."""
        with self._lock:
            return sum(
                number == _UNREAD and offset >= each.read_to and offset not in self._settled.get(each.queue.topic, ())
                for each in self._queues.values() if each.group in groups
                for offset, number in enumerate(each.issue, each.low)
            )  # fmt: skip

    def page(self, backend: Backend, groups: Collection[str], wanted: Selection, before: At | None, limit: int) -> Page:
        """Return the dead letters of groups that are wanted, the newest first, from the one below ``before`` on."""
        shown: list[DeadLetter] = []
        settled = settled_of(backend) if wanted.done else {}
        places = self._places(groups, wanted, before)
        for number, at in enumerate(places[:READ_AT_MOST]):
            queue = MessageQueue(DEAD_LETTER_PREFIX + at.group, at.queue_id)
            for message in backend.queues.read(queue, at.offset, 1, _EVERY_TAG).messages:
                if message.queue_offset == at.offset:
                    letter = DeadLetter(at.group, message, settled.get((queue.topic, at.offset, message.message_id)))
                    if wanted.has(letter):
                        shown.append(letter)
            if len(shown) == limit:
                return Page(shown, at if number + 1 < len(places) else None)
        return Page(shown, places[READ_AT_MOST - 1] if len(places) > READ_AT_MOST else None)

    def _places(self, groups: Collection[str], wanted: Selection, before: At | None) -> list[At]:
        with self._lock:
            places = []
            for each in self._queues.values():
                if each.group in groups:
                    queue_id, name = each.queue.queue_id, each.group
                    only = None if wanted.issue is None else self._numbers.get((name, wanted.issue), _UNREAD)
                    places += [
                        (stored, queue_id, offset, name)
                        for offset, stored, number in self._of(each, wanted)
                        if only in (None, number)
                    ]
        found = heapq.nlargest(
            READ_AT_MOST + 1, places if before is None else (each for each in places if each < before)
        )
        return [At(*each) for each in found]

    def _of(self, each: _Queue, wanted: Selection) -> Iterator[tuple[int, int, int]]:
        """Yield what was read of a queue and is wanted: offset, when it was stored, the number of its issue."""
        settled = set() if wanted.done else self._settled.get(each.queue.topic, set())
        since, until, begin = wanted.since_ms or 0, wanted.until_ms or _END_OF_TIME, max(0, each.read_to - each.low)
        offsets = range(each.low + begin, each.low + len(each.issue))
        for offset, stored, number in zip(offsets, each.stored[begin:], each.issue[begin:], strict=True):
            if number != _UNREAD and since <= stored <= until and offset not in settled:
                yield offset, stored, number

    def _has(self, number: int, name: tuple[str, Issue], group: str, error: str) -> bool:
        """Return whether an issue is of a group, if one is named, and has an error in its class, text or place."""
        of, issue = name
        if group not in ("", of):
            return False
        return error.lower() in f"{issue.error}: {self._texts[number][1]} {issue.place}".lower()

    def _known(self, name: tuple[str, Issue], number: int, times: list[int], begin: int, end: int) -> Known:
        times.sort()
        return Known(*name, self._texts[number][1], len(times), times[0], times[-1], _bins(times, begin, end))

    def _brought_up_to_date(self, backend: Backend, queue: MessageQueue) -> _Queue:
        low, high = backend.queues.span(queue)
        each = self._queues.setdefault(queue, _Queue(queue, low, high))
        if not each.issue or high < each.low + len(each.issue):  # a power cut took the last ones
            each = self._queues[queue] = _Queue(queue, low, high)
        if low > each.low:  # retention has removed them
            del each.stored[: low - each.low], each.issue[: low - each.low]
            each.low, each.read_to = low, max(low, each.read_to)
        is_new, end = not each.issue, each.low + len(each.issue)
        each.stored.extend([0] * (high - end))
        each.issue.extend([_UNREAD] * (high - end))
        if not is_new:
            self._read(backend, each, end, high)
        return each

    def _read(self, backend: Backend, each: _Queue, begin: int, end: int) -> None:
        while begin < end:
            result = backend.queues.read(each.queue, begin, min(_READ_AT_ONCE, end - begin), _EVERY_TAG)
            for message in result.messages:
                at = message.queue_offset - each.low
                if 0 <= at < len(each.issue):
                    letter = DeadLetter(each.group, message, None)
                    number = self._numbers.setdefault((each.group, letter.issue), len(self._numbers))
                    each.stored[at], each.issue[at] = message.store_timestamp, number
                    if message.store_timestamp >= self._texts.get(number, (0, ""))[0]:
                        self._texts[number] = message.store_timestamp, letter.error.partition(": ")[2]
            if result.next_offset <= begin:
                return
            begin = result.next_offset

    def _read_journal(self, directory: Path) -> None:
        try:
            status = (directory / "config" / "deadLetters.jsonl").stat()
        except FileNotFoundError:
            return
        if self._journal != (journal := (status.st_size, status.st_mtime_ns)):
            self._journal, self._settled = journal, settled_letters(str(directory))


def _bins(times: list[int], begin_ms: int, end_ms: int) -> tuple[int, ...]:
    """Return how many of ascending times are in each part of a period. A clock that was set stays within it."""
    cuts = [bisect_left(times, begin_ms + (end_ms - begin_ms) * number / BINS) for number in range(1, BINS)]
    return tuple(after - before for before, after in pairwise([0, *cuts, len(times)]))


def name_of(letter: DeadLetter) -> str:
    """Return a dead letter as a form names it."""
    return f"{letter.message.queue_offset}:{letter.message.message_id}"


def chosen(topic: str, names: Iterable[str]) -> Selection:
    """Return the selection of the dead letters with these names in a topic. Raises ValueError."""
    among = set()
    for name in names:
        offset, _, message_id = name.partition(":")
        if not offset.isdecimal() or not message_id:
            raise ValueError(f"{name!r} names no dead letter: go back and choose again")
        among.add((topic, int(offset), message_id))
    return Selection(among=frozenset(among), done=True)
