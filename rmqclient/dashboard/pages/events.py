"""Events: what was done to the store, by whom, the newest first; and what changed at 14:05."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.desk.forms import WrongInput, asked, moment
from rmqclient.store import clock
from rmqclient.store.marks import KINDS, Mark, marks_of

AROUND_MS = 600_000
"""How far before and after a time its events lie."""
RANGES = ("1h", "24h", "7d")
_PAGE = 100
_OF_GROUPS = ("pause", "resume", "seek", "replay", "purge")
_SENTENCES = {
    "opened": "The store was opened after a kill",
    "start": "A supervisor started",
    "stop": "A supervisor ended",
    "scale": "The number of workers was changed",
    "worker": "{} went wrong",
    "pause": "{} was paused",
    "resume": "{} was resumed",
    "seek": "{} was moved",
    "replay": "Dead letters of {} were replayed",
    "purge": "Dead letters of {} were purged",
    "cancel": "The delivery of {} was cancelled",
    "commit": "A transaction of {} was committed",
    "rollback": "A transaction of {} was rolled back",
    "retention": "Files of the log were removed",
}
_TONES = {"worker": "bad", "opened": "bad", "pause": "warn", "retention": "warn", "start": "good", "resume": "good"}
"""Colours of pills; what is not here is calm."""


class Key(NamedTuple):
    """Where an event stands among all, by its time and its number among those of the same ms."""

    at_ms: int
    number: int

    def __str__(self) -> str:
        return f"{self.at_ms}.{self.number}"


class Event(NamedTuple):
    """A mark as the page shows it."""

    key: Key
    mark: Mark

    @property
    def sentence(self) -> tuple[str, str]:
        """What was done: the words before the subject, and those behind it; without one, only the former."""
        before, _, behind = _SENTENCES.get(self.mark.kind, "{}").partition("{}")
        return before, behind

    @property
    def has_subject(self) -> bool:
        """Whether the sentence names its subject."""
        return "{}" in _SENTENCES.get(self.mark.kind, "{}")

    @property
    def is_of_group(self) -> bool:
        """Whether its subject is a group of consumers."""
        return self.mark.kind in _OF_GROUPS


def show(request: Request) -> Response:
    """Answer the page of events.

    ``?kind=`` and ``?subject=``, a part of a name, select; ``?since=`` begins a range, ``?at=`` asks for the events
    around a time; ``?before=`` goes on behind the last event of a page, however many were written meanwhile.
    """
    desk = desk_of(request)
    kind, subject, since, at = (asked(request, name) for name in ("kind", "subject", "since", "at"))
    wrong, at_ms, since_ms = "", None, None
    try:
        at_ms, since_ms = moment(at), moment(since)
    except WrongInput as error:
        wrong = str(error)
    root = desk.store().root
    known = _events(marks_of(root))
    wanted = [
        each
        for each in known
        if kind in ("", each.mark.kind)
        and subject.lower() in each.mark.subject.lower()
        and (since_ms is None or each.mark.at_ms >= since_ms)
        and (at_ms is None or abs(each.mark.at_ms - at_ms) <= AROUND_MS)
    ]
    before = _key(asked(request, "before"))
    left = [each for each in wanted if before is None or each.key < before]
    with desk.reading() as reading:
        workers = {each.name: each.pid for each in reading.workers() if each.name}
    return desk.page(
        request,
        "events.html",
        events=left[:_PAGE],
        more=str(left[_PAGE - 1].key) if len(left) > _PAGE else "",
        found=len(wanted),
        last_before=next((each for each in known if at_ms is not None and each.mark.at_ms < at_ms - AROUND_MS), None),
        kinds=[(each, sum(event.mark.kind == each for event in known)) for each in KINDS],
        filters={"kind": kind, "subject": subject, "since": since, "at": at},
        ranges=RANGES,
        is_paged=before is not None,
        at_ms=at_ms,
        from_ms=None if at_ms is None else at_ms - AROUND_MS,
        to_ms=None if at_ms is None else min(at_ms + AROUND_MS, clock.wall_ms()),
        oldest_ms=known[-1].mark.at_ms if known else None,
        tones=_TONES,
        workers=workers,
        wrong=wrong,
    )


def _events(marks: Sequence[Mark]) -> list[Event]:
    """Return marks with their keys, the newest first."""
    counted: dict[int, int] = {}
    found = []
    for mark in marks:
        number = counted[mark.at_ms] = counted.get(mark.at_ms, 0) + 1
        found.append(Event(Key(mark.at_ms, number), mark))
    return sorted(found, key=lambda each: each.key, reverse=True)


def _key(text: str) -> Key | None:
    if not text:
        return None
    found = re.fullmatch(r"([0-9]{1,15})\.([0-9]{1,9})", text)
    if found is None:
        raise WrongInput(f"before {text!r}: follow the link to older events")
    return Key(int(found[1]), int(found[2]))


ROUTES = [Route("/events", show)]
