"""Dead letters by reason: how many a group has of each exception, and the choice of some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rmqclient.backend import Backend
from rmqclient.failures.dead_letters import DeadLetter, GroupLetters, Selection, newest

READ_AT_MOST = 10_000
"""Letters of one group that are read for one page with a filter, the newest."""


@dataclass(frozen=True, slots=True)
class Letters:
    """The letters of a page."""

    shown: list[DeadLetter]
    """The newest first."""
    matching: int
    is_complete: bool
    """False when more may match, among the letters that were not read."""
    by_error: list[tuple[str, int]]
    """Class of the last failure, and how many, the most first; of the letters that were read and wait."""
    read: int | None
    """How many letters were read, the newest; None for all."""


def letters_of(backend: Backend, of: GroupLetters, selection: Selection, error_class: str, limit: int) -> Letters:
    """Return the letters of a group that are wanted. Without a filter, no others are read."""
    has_filter = bool(error_class) or selection != Selection(done=selection.done)
    most = READ_AT_MOST if has_filter else limit
    waiting: Counter[str] = Counter()
    shown: list[DeadLetter] = []
    read = matching = 0
    for each in newest(backend, of.group, done=selection.done):
        if read == most:
            break
        read += 1
        name = class_of(each)
        waiting[name] += each.done is None
        if selection.has(each) and error_class in ("", name):
            matching += 1
            if len(shown) < limit:
                shown.append(each)
    else:
        return Letters(shown, matching, True, (+waiting).most_common(), None)
    if not has_filter:
        matching = of.waiting + (of.replayed + of.purged if selection.done else 0)
    return Letters(shown, matching, not has_filter, (+waiting).most_common(), read)


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
