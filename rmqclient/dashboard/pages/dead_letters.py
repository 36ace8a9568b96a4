"""Dead letters: by group and exception, and replaying or purging those that were chosen."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.desk.forms import Form, WrongInput, action, asked, asked_number, moment
from rmqclient.dashboard.looking.bodies import brief
from rmqclient.dashboard.looking.letters import chosen, class_of, letters_of, name_of
from rmqclient.errors import QueueError
from rmqclient.failures import dead_letters
from rmqclient.failures.dead_letters import DeadLetter, GroupLetters, Selection
from rmqclient.failures.retry import dead_letter_topic

_MOST = 500


def show(request: Request) -> Response:
    """Answer the groups that have dead letters; with ``?group=``, the letters of one, by the filters of the URL."""
    desk = desk_of(request)
    desk.live.begin()
    backend = desk.backend()
    group = asked(request, "group")
    groups = dead_letters.groups(backend)
    facts: dict[str, Any] = {"group": group, "groups": groups, "letters": None, "wrong": ""}
    filters = {name: asked(request, name) for name in ("error", "class", "topic", "key", "since", "again")}
    if group:
        try:
            selection = Selection(
                topic=filters["topic"] or None,
                error=filters["error"] or None,
                since_ms=moment(filters["since"]),
                key=filters["key"] or None,
                done=bool(filters["again"]),
            )
            limit = asked_number(request, "limit", 100, _MOST)
            of = next((each for each in groups if each.group == group), GroupLetters(group, 0, 0, 0))
            facts["letters"] = letters_of(backend, of, selection, filters["class"], limit)
        except WrongInput as error:
            facts["wrong"] = str(error)
    shown = facts["letters"].shown if facts["letters"] else []
    rows = [(each, name_of(each), class_of(each), brief(each.message)) for each in shown]
    return desk.page(request, "dead_letters/all.html", filters=filters, rows=rows, **facts)


@action
def preview(request: Request, form: Form) -> Response:
    """Show which letters would be replayed or purged, and ask."""
    desk = desk_of(request)
    group, what = form.one("group"), _what(form)
    found = list(dead_letters.select(desk.backend(), group, _chosen(form, group)))
    rows = [(each, name_of(each), brief(each.message)) for each in found]
    return desk.page(request, "dead_letters/preview.html", group=group, what=what, rows=rows)


@action
def settle(request: Request, form: Form) -> Response:
    """Replay or purge the letters of the preview, and show what became of each."""
    desk = desk_of(request)
    group, what = form.one("group"), _what(form)
    selection, wrong = _chosen(form, group), ""
    done: list[tuple[DeadLetter, tuple[str, int, int] | None]] = []
    try:
        if what == "replay":
            for letter, sent in dead_letters.replay(desk.backend(), group, selection):
                done.append((letter, (sent.queue.topic, sent.queue.queue_id, sent.queue_offset)))
        else:
            done = [(letter, None) for letter in dead_letters.purge(desk.backend(), group, selection)]
    except QueueError as error:
        wrong = str(error)
    desk.acted(request, what, group=group, asked=len(selection.among or ()), done=len(done), error=wrong)
    asked_for = len(selection.among or ())
    return desk.page(request, "dead_letters/done.html", group=group, what=what, done=done, asked=asked_for, wrong=wrong)


def _what(form: Form) -> str:
    what = form.one("what")
    if what not in ("replay", "purge"):
        raise WrongInput(f"{what!r}: dead letters are replayed or purged")
    return what


def _chosen(form: Form, group: str) -> Selection:
    names = form.all("letter")
    if not names:
        raise WrongInput("no dead letter was chosen: go back and tick some")
    try:
        return chosen(dead_letter_topic(group), names)
    except ValueError as error:
        raise WrongInput(str(error)) from error


ROUTES = [
    Route("/dead-letters", show),
    Route("/dead-letters/preview", preview, methods=["POST"]),
    Route("/dead-letters/settle", settle, methods=["POST"]),
]
