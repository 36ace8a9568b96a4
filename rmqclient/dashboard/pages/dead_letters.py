"""Dead letters: by issue, and replaying or dropping all that match, or those that were ticked, after a question."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.desk.forms import Form, WrongInput, action, asked, asked_number, moment
from rmqclient.dashboard.desk.jobs import Job, JobRuns, What
from rmqclient.dashboard.desk.rendering import url
from rmqclient.dashboard.looking.bodies import brief
from rmqclient.dashboard.looking.issues import At, by_exception, chosen, name_of
from rmqclient.failures import dead_letters
from rmqclient.failures.dead_letters import DeadLetter, Issue, Selection
from rmqclient.failures.frames import runs_of
from rmqclient.failures.retry import dead_letter_topic

FILTERS = ("group", "class", "at", "error", "topic", "key", "since", "until", "again")
"""Parts of the URL. ``class`` and ``at``, where it was raised, are an issue; ``class`` alone is every place of it."""
_NO_HISTORY = "-"
"""As the class of an issue."""
_MOST = 500
_EXAMPLES = 5
_COUNTED_S = 5.0
_RATE, _FASTEST = 100, 10_000
_HOUR_MS = 3_600_000


class _Asked(NamedTuple):
    """The filters of a page, and what they choose."""

    filters: dict[str, str]
    selection: Selection

    @property
    def group(self) -> str:
        return self.filters["group"]

    @property
    def query(self) -> str:
        return urlencode({name: value for name, value in self.filters.items() if value})


def show(request: Request) -> Response:
    """Answer the issues, and the dead letters that match the filters of the URL, a page of them."""
    desk = desk_of(request)
    desk.live.begin()
    backend = desk.backend()
    groups = dead_letters.groups(backend)
    unread = desk.issues.read(backend)
    limit = asked_number(request, "limit", 50, _MOST)
    wanted, wrong = _Asked(dict.fromkeys(FILTERS, ""), Selection()), ""
    try:
        wanted = _asked(lambda name: asked(request, name))
        before = _before(asked(request, "before"))
    except WrongInput as error:
        wrong, before = str(error), None
    chosen_groups = [wanted.group] if wanted.group else [each.group for each in groups]
    found = desk.issues.page(backend, chosen_groups, wanted.selection, before, limit)
    hour = Selection(since_ms=_now_ms() - _HOUR_MS)
    known = desk.issues.known(wanted.selection, wanted.group, wanted.selection.error or "")
    shown = [each for each in known if wanted.selection.issue in (None, each.issue)]
    return desk.page(
        request,
        "dead_letters/all.html",
        groups=groups,
        wanted=wanted,
        issues=shown,
        failing=by_exception(shown),
        begin_ms=wanted.selection.since_ms or min((each.first_ms for each in known), default=0),
        last_hour={(each.group, each.issue): each.letters for each in desk.issues.known(hour, wanted.group)},
        rows=[(each, name_of(each), brief(each.message)) for each in found.shown],
        next=":".join(map(str, found.next)) if found.next else "",
        is_first=before is None,
        unread=unread,
        damaged=desk.issues.damaged(chosen_groups),
        running=next((each for each in desk.jobs.all() if each.is_running), None),
        runs_of=runs_of,
        wrong=wrong,
    )


def ask(request: Request) -> Response:
    """Ask whether all that match shall be replayed or dropped; how many there are, and what happens to them."""
    return _question(
        request, _asked(lambda name: asked(request, name)), asked(request, "what"), [], asked(request, "back")
    )


@action
def ask_ticked(request: Request, form: Form) -> Response:
    """Ask the same about those that were ticked."""
    names = form.all("letter")
    if not names:
        raise WrongInput("no dead letter was ticked: go back and tick some, or choose all that match")
    return _question(request, _asked(form.one), form.one("what"), names, form.one("back"))


def _question(request: Request, wanted: _Asked, what: str, names: list[str], back: str) -> Response:
    desk = desk_of(request)
    backend = desk.backend()
    _check(what)
    if not wanted.group:
        raise WrongInput("of which group? Choose one first")
    until_ms = wanted.selection.until_ms or _now_ms()
    selection = _ticked(wanted.group, names) if names else replace(wanted.selection, until_ms=until_ms)
    desk.issues.read(backend)
    count, examples, is_complete = _counted(dead_letters.select(backend, wanted.group, selection))
    return desk.page(
        request,
        "dead_letters/question.html",
        wanted=wanted,
        what=what,
        names=names,
        back=back,
        count=count,
        is_complete=is_complete,
        kept={**wanted.filters, "since": _written(wanted.selection.since_ms), "until": _written(until_ms)},
        since_ms=wanted.selection.since_ms,
        rows=[(each, brief(each.message)) for each in examples],
        topics=sorted({each.topic for each in examples}),
        is_reached_alone=dead_letters.is_reached_alone(backend, wanted.group),
        rate=_RATE,
        fastest=_FASTEST,
    )


@action
def start(request: Request, form: Form) -> Response:
    """Begin the job that the question was about, and show how far it is."""
    desk = desk_of(request)
    backend = desk.backend()
    wanted, what, names = _asked(form.one), _check(form.one("what")), form.all("letter")
    only_group = form.one("to") == "group" and dead_letters.is_reached_alone(backend, wanted.group)
    selection = _ticked(wanted.group, names) if names else wanted.selection
    rate = _number("at most a second", form.one("rate", str(_RATE)), _FASTEST)
    job = Job(
        what=what,
        group=wanted.group,
        selection=selection,
        asked=_number("count", form.one("count"), 1 << 40),
        rate=float(rate),
        only_group=only_group,
        author=desk.author(request),
        back=form.one("back"),
    )
    with desk.acting(request, what, group=wanted.group, asked=job.asked, only_group=only_group, rate=rate):
        try:
            desk.jobs.start(backend, job)
        except JobRuns as error:
            raise WrongInput(str(error)) from error
    return _to_job(request, job)


def show_job(request: Request) -> Response:
    """Answer how far a job is."""
    return desk_of(request).page(request, "dead_letters/job.html", job=_job(request))


@action
def cancel(request: Request, form: Form) -> Response:  # noqa: ARG001 - every action gets its form
    """End a job before its end: what is done stays done, and the others wait as before."""
    desk, job = desk_of(request), _job(request)
    job.is_cancelled = job.is_cancelled or job.is_running
    desk.acted(request, "cancel", job=job.number, done=job.done)
    return _to_job(request, job)


def _asked(field: Any) -> _Asked:
    filters = {name: str(field(name)) for name in FILTERS}
    error, at = filters["class"], filters["at"]
    is_issue = bool(at) or error == _NO_HISTORY
    selection = Selection(
        topic=filters["topic"] or None,
        error=filters["error"] or (f"{error}: " if error and not is_issue else None),
        since_ms=moment(filters["since"]),
        until_ms=moment(filters["until"]),
        key=filters["key"] or None,
        issue=Issue("" if error == _NO_HISTORY else error, at) if is_issue else None,
        done=bool(filters["again"]),
    )
    return _Asked(filters, selection)


def _counted(letters: Iterator[DeadLetter]) -> tuple[int, list[DeadLetter], bool]:
    """Return how many there are, the first ones, and whether these are all: counting ends after a time."""
    end, count, first = time.monotonic() + _COUNTED_S, 0, list[DeadLetter]()
    for each in letters:
        count += 1
        if count <= _EXAMPLES:
            first.append(each)
        if time.monotonic() > end:
            return count, first, False
    return count, first, True


def _ticked(group: str, names: list[str]) -> Selection:
    try:
        return chosen(dead_letter_topic(group), names)
    except ValueError as error:
        raise WrongInput(str(error)) from error


def _check(what: str) -> What:
    if what not in ("replay", "drop"):
        raise WrongInput(f"{what!r}: dead letters are replayed or dropped")
    return cast("What", what)


def _number(name: str, text: str, most: int) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:20]) <= most:
        raise WrongInput(f"{name} {text!r}: give a number from 1 to {most:,}")
    return int(text)


def _before(text: str) -> At | None:
    if not text:
        return None
    stored, queue_id, offset, group = [*text.split(":", 3), "", "", ""][:4]
    if not all(each.isascii() and each.isdecimal() and len(each) < 20 for each in (stored, queue_id, offset)):
        raise WrongInput(f"before {text!r}: follow the link of a page, which has the place where it goes on")
    return At(int(stored), int(queue_id), int(offset), group)


def _written(ms: int | None) -> str:
    """Return a time as a filter is written, whenever it is read."""
    return "" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _now_ms() -> int:
    return int(time.time() * 1000)


def _job(request: Request) -> Job:
    job = desk_of(request).jobs.get(request.path_params["number"])
    if job is None:
        raise HTTPException(404, "This job is not known any more: the dashboard was restarted, or has had 50 others.")
    return job


def _to_job(request: Request, job: Job) -> Response:
    base = request.scope.get("root_path", "").rstrip("/")
    return RedirectResponse(url(base, "dead-letters", "jobs", job.number), 303)


ROUTES = [
    Route("/dead-letters", show),
    Route("/dead-letters/question", ask),
    Route("/dead-letters/ticked", ask_ticked, methods=["POST"]),
    Route("/dead-letters/start", start, methods=["POST"]),
    Route("/dead-letters/jobs/{number:int}", show_job),
    Route("/dead-letters/jobs/{number:int}/cancel", cancel, methods=["POST"]),
]
