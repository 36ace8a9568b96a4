"""Groups: how far they are, who has what, what runs now; pausing, resuming and moving them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rmqclient.admin.infos import assignment_of, subscriptions_of
from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.desk.forms import Form, WrongInput, action, asked, position, written
from rmqclient.dashboard.desk.rendering import url
from rmqclient.errors import UnknownGroup
from rmqclient.names import group_and_member
from rmqclient.store.observe.summary import RETRY_PREFIX, groups_of, state_of


def show_all(request: Request) -> Response:
    """Answer the list of groups; ``?q=`` selects by a part of the name, ``?state=`` by the begin of the state."""
    desk = desk_of(request)
    desk.live.begin()
    part, state = asked(request, "q"), asked(request, "state")
    with desk.reading() as reading:
        seen = reading.observe()
    lines = sorted(groups_of(seen), key=lambda each: -each.lag)
    shown = [each for each in lines if part.lower() in each.group.lower() and each.state.startswith(state)]
    states = sorted({each.state.partition(":")[0] for each in lines})
    facts: dict[str, Any] = {
        "part": part,
        "state": state,
        "states": states,
        "known": len(lines),
        "now_ms": seen.wall_ms,
    }
    return desk.page(request, "groups/all.html", groups=shown, **facts)


def show_one(request: Request) -> Response:
    """Answer the page of one group. Raises UnknownGroup."""
    desk = desk_of(request)
    desk.live.begin()
    name = request.path_params["group"]
    with desk.reading() as reading:
        seen = reading.observe()
    group = next((each for each in groups_of(seen) if each.group == name), None)
    if group is None:
        raise UnknownGroup(f"group {name!r} never consumed from this store, and has no member")
    return desk.page(
        request,
        "groups/one.html",
        group=group,
        now_ms=seen.wall_ms,
        rows=[(each, state_of(each), group_and_member(each.group)[1]) for each in group.queues],
        members=assignment_of(group),
        subscriptions=[each for each in subscriptions_of(group) if not each.topic.startswith(RETRY_PREFIX)],
        paused=any(state_of(each) == "paused" for each in group.queues),
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
    with desk.acting(request, "seek", group=group, topic=topic, to=to) as facts, desk.admin() as admin:
        moved = admin.seek(group, topic, place, queue_id=queue_id)
        facts["queues"] = len(moved)
    return _back(request, group, f"{len(moved)} queues of {topic} moved to {to}")


def _set_paused(request: Request, form: Form, *, paused: bool) -> Response:
    desk = desk_of(request)
    group, topic = request.path_params["group"], form.one("topic") or None
    with (
        desk.acting(request, "pause" if paused else "resume", group=group, topic=topic) as facts,
        desk.admin() as admin,
    ):
        changed = (admin.pause if paused else admin.resume)(group, topic)
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
