"""Groups: how far they are, who has what, what runs now; pausing, resuming and moving them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rmqclient.admin.infos import assignment_of, subscriptions_of
from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.desk.forms import Form, WrongInput, action, asked, asked_range, position, written
from rmqclient.dashboard.desk.rendering import url
from rmqclient.dashboard.looking.issues import by_exception
from rmqclient.dashboard.looking.lanes import lanes_of
from rmqclient.dashboard.looking.needs import standings
from rmqclient.dashboard.looking.past import RANGES, WORDS, words_of
from rmqclient.dashboard.pages.overview import dead_letters_of
from rmqclient.errors import UnknownGroup
from rmqclient.failures.dead_letters import Selection
from rmqclient.store.observe.summary import RETRY_PREFIX, state_of

_SHOWN = 50
_MARKS_SHOWN = 4


def show_all(request: Request) -> Response:
    """Answer the list of groups, those with most impact first.

    ``?q=`` selects by a part of the name, ``?state=`` by the begin of the state, ``?all=1`` shows more than fifty.
    """
    desk, name = desk_of(request), asked_range(request)
    desk.live.begin()
    part, state, whole = asked(request, "q"), asked(request, "state"), bool(asked(request, "all"))
    with desk.reading() as reading:
        seen = reading.observe()
    lines = standings(seen, desk.past.of(name).figures(), dead_letters_of(desk), RANGES[name])
    found = [each for each in lines if part.lower() in each.name.lower() and each.group.state.startswith(state)]
    shown = found if whole else found[:_SHOWN]
    facts: dict[str, Any] = {
        "part": part,
        "state": state,
        "states": sorted({each.group.state.partition(":")[0].split(" ")[0] for each in lines}),
        "known": len(lines),
        "more": len(found) - len(shown),
        "range": name,
        "words": WORDS,
    }
    return desk.page(request, "groups/all.html", groups=shown, **facts)


def show_one(request: Request) -> Response:
    """Answer the page of one group; ``?range=`` says of which time it tells. Raises UnknownGroup."""
    desk, range_name = desk_of(request), asked_range(request)
    desk.live.begin()
    name = request.path_params["group"]
    past = desk.past.of(range_name)
    with desk.reading() as reading:
        seen = reading.observe()
    known = standings(seen, past.figures(), dead_letters_of(desk), RANGES[range_name])
    standing = next((each for each in known if each.name == name), None)
    if standing is None:
        raise UnknownGroup(f"group {name!r} never consumed from this store, and has no member")
    group = standing.group
    marks = [mark for mark in desk.past.marks(0, name) if mark.subject == name]
    workers = {each.pid: each.name for each in seen.workers}
    desk.issues.read(desk.backend())
    return desk.page(
        request,
        "groups/one.html",
        failing=by_exception(desk.issues.known(Selection(since_ms=past.since_ms), name)),
        begin_ms=past.since_ms,
        each=standing,
        group=group,
        figures=standing.figures,
        range=range_name,
        words=WORDS,
        lanes=lanes_of(group),
        calls=[(call, workers.get(call.pid) or f"process {call.pid}") for call in group.calls],
        workers=workers,
        members=assignment_of(group),
        subscriptions=[each for each in subscriptions_of(group) if not each.topic.startswith(RETRY_PREFIX)],
        paused=any(state_of(each) == "paused" for each in group.queues),
        pause_mark=next((mark for mark in reversed(marks) if mark.kind == "pause"), None),
        marks=[(mark, words_of(mark)) for mark in reversed(marks[-_MARKS_SHOWN:])],
        named=desk.named(request),
        done=asked(request, "done"),
    )


def show_seek(request: Request) -> Response:
    """Answer the form that moves a group; with ``?to=``, where it would land in each queue."""
    desk = desk_of(request)
    group, topic, to = request.path_params["group"], asked(request, "topic"), asked(request, "to")
    queue_id, moved, wrong, at = asked(request, "queue"), None, "", to
    with desk.admin() as admin:
        topics = [each.topic for each in admin.subscriptions(group) if not each.topic.startswith(RETRY_PREFIX)]
        if topic and to:
            try:
                place = position(to)
                at = written(place)
                moved = admin.seek(group, topic, place, queue_id=_queue(queue_id), dry_run=True)
            except (WrongInput, ValueError) as error:
                wrong = str(error)
    facts = {"group": group, "topic": topic, "topics": topics, "to": to, "at": at, "queue": queue_id, "moved": moved}
    return desk.page(request, "groups/seek.html", wrong=wrong, **facts)


@action
def pause(request: Request, form: Form) -> Response:
    """Let a group take nothing more."""
    return _set_paused(request, form, paused=True)


@action
def resume(request: Request, form: Form) -> Response:
    """Let a group take messages again."""
    return _set_paused(request, form, paused=False)


@action
def seek(request: Request, form: Form) -> Response:
    """Move a group to where the preview said, and go back to its page."""
    desk = desk_of(request)
    group, topic, to = request.path_params["group"], form.one("topic"), form.one("to")
    place, queue_id = position(to), _queue(form.one("queue"))
    with desk.acting(request, "seek", group=group, topic=topic, to=to) as facts, desk.admin(request) as admin:
        moved = admin.seek(group, topic, place, queue_id=queue_id)
        facts["queues"] = len(moved)
    return _back(request, group, f"{len(moved)} queues of {topic} moved to {to}")


def _set_paused(request: Request, form: Form, *, paused: bool) -> Response:
    desk = desk_of(request)
    group, topic = request.path_params["group"], form.one("topic") or None
    reason, author = form.one("reason"), desk.author(request, form.one("author"))
    with (
        desk.acting(request, "pause" if paused else "resume", group=group, topic=topic) as facts,
        desk.admin(request) as admin,
    ):
        if paused:
            changed = admin.pause(group, topic, reason=reason, author=author)
            facts |= {"reason": reason, "author": author}
        else:
            changed = admin.resume(group, topic, author=author)
        facts["queues"] = len(changed)
    return _back(request, group, f"{len(changed)} queues {'paused' if paused else 'resumed'}")


def _back(request: Request, group: str, done: str) -> Response:
    base = request.scope.get("root_path", "").rstrip("/")
    return RedirectResponse(url(base, "groups", group, done=done), 303)


def _queue(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise WrongInput(f"queue {text!r}: give the number of a queue, or nothing for all")
    return int(text)


ROUTES = [
    Route("/groups", show_all),
    Route("/groups/{group}", show_one),
    Route("/groups/{group}/seek", show_seek, methods=["GET"]),
    Route("/groups/{group}/seek", seek, methods=["POST"]),
    Route("/groups/{group}/pause", pause, methods=["POST"]),
    Route("/groups/{group}/resume", resume, methods=["POST"]),
]
