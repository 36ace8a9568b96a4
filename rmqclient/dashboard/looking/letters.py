"""Dead letters by reason: how many a group has of each exception, and the choice of some of them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from rmqclient.backend import Backend
from rmqclient.failures.dead_letters import DeadLetter, Selection, groups, select

READ_AT_MOST = 10_000
"""Letters of one group that are read for one page."""


@dataclass(frozen=True, slots=True)
class Letters:
    """The letters of a page."""

    shown: list[DeadLetter]
    """The newest first."""
    matching: int
    by_error: list[tuple[str, int]]
    """Class of the last failure, and how many, the most first; of all letters of the group that wait."""
    is_complete: bool
    """False when the group has more than were read."""


@dataclass(slots=True)
class Summary:
    """How many letters each group has; read anew at most once in ten times as long as the reading takes."""

    _counted: list[tuple[str, int, int, int]] = field(default_factory=list)
    _again_at: float = 0.0

    def of(self, backend: Backend) -> list[tuple[str, int, int, int]]:
        """Return group, waiting, replayed and purged of each group that has dead letters."""
        begun = time.monotonic()
        if begun >= self._again_at:
            self._counted = [(each.group, each.waiting, each.replayed, each.purged) for each in groups(backend)]
            self._again_at = begun + 10 * (time.monotonic() - begun)
        return self._counted


def letters_of(backend: Backend, group: str, selection: Selection, error_class: str, limit: int) -> Letters:
    """Return the letters of a group that are wanted. Only those that are shown are kept while all are read."""
    newest: deque[DeadLetter] = deque(maxlen=limit)
    waiting: Counter[str] = Counter()
    read = matching = 0
    for each in select(backend, group, Selection(done=selection.done), READ_AT_MOST + 1):
        read += 1
        name = class_of(each)
        waiting[name] += each.done is None
        if selection.has(each) and error_class in ("", name):
            matching += 1
            newest.append(each)
    return Letters([*reversed(newest)], matching, (+waiting).most_common(), is_complete=read <= READ_AT_MOST)


def class_of(letter: DeadLetter) -> str:
    """Return the class of the last failure; empty when the history is."""
    last = letter.failures[-1:]
    return str(last[0].get("error", "")) if last else ""


def name_of(letter: DeadLetter) -> str:
    """Return a letter as a form names it."""
    return f"{letter.message.queue_offset}:{letter.message.message_id}"


def chosen(topic: str, names: Iterable[str]) -> Selection:
    """Return the selection of the letters with these names in a dead letter topic. Raises ValueError."""
    among = set()
    for name in names:
        offset, _, message_id = name.partition(":")
        if not offset.isdecimal() or not message_id:
            raise ValueError(f"{name!r} names no dead letter: go back and choose again")
        among.add((topic, int(offset), message_id))
    return Selection(among=frozenset(among), done=True)
