"""What waits: messages for their time, and transactions for a decision."""

from __future__ import annotations

from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.desk.forms import Form, WrongInput, action, asked, asked_number
from rmqclient.dashboard.desk.rendering import url
from rmqclient.dashboard.looking.bodies import brief
from rmqclient.schedules import waiting
from rmqclient.sending import transactions
from rmqclient.store import DELAYS, SCHEDULE_TOPIC

_MOST = 500


def show_schedules(request: Request) -> Response:
    """Answer the messages that wait for a time, the next one first, and how many wait in each delay level."""
    desk = desk_of(request)
    store = desk.store()
    topic, limit = asked(request, "topic"), asked_number(request, "limit", 100, _MOST)
    rows = list(islice(waiting.select(store, topic=topic or None), limit + 1))
    with desk.reading() as reading:
        queues = sorted(each for each in reading.queues() if each.queue.topic == SCHEDULE_TOPIC)
    levels = [
        (level, DELAYS[level - 1], each.max_offset - store.schedule.next_offset(level))
        for each in queues
        if (level := each.queue.queue_id + 1) <= len(DELAYS)
    ]
    facts: dict[str, Any] = {"rows": rows[:limit], "is_complete": len(rows) <= limit, "levels": levels, "topic": topic}
    return desk.page(request, "waiting/schedules.html", done=asked(request, "done"), **facts)


def show_transactions(request: Request) -> Response:
    """Answer the transactions that are undecided: first those that only a person decides."""
    desk = desk_of(request)
    known = transactions.select(desk.backend())
    rows = [(each, brief(each.message)) for each in known[:_MOST]]
    return desk.page(request, "waiting/transactions.html", rows=rows, known=len(known), done=asked(request, "done"))


@action
def cancel(request: Request, form: Form) -> Response:
    """Take back one message that waits for its time."""
    desk = desk_of(request)
    message_id = form.one("id")
    with desk.acting(request, "cancel", message_id=message_id) as facts:
        facts["cancelled"] = cancelled = waiting.cancel(desk.store(), message_id, author=desk.author(request))
    text = f"{message_id} was taken back" if cancelled else f"{message_id} does not wait any more"
    return _back(request, "schedules", text)


@action
def decide(request: Request, form: Form) -> Response:
    """Commit one transaction, or roll it back."""
    desk = desk_of(request)
    message_id, what = form.one("id"), form.one("what")
    if what not in ("commit", "rollback"):
        raise WrongInput(f"{what!r}: a transaction is committed, or rolled back by rollback")
    found = transactions.select(desk.backend(), message_id=message_id)
    if not found:
        return _back(request, "transactions", f"{message_id} is decided already")
    with desk.acting(request, what, message_id=message_id, group=found[0].group):
        transactions.decide(desk.backend(), found[0], commit=what == "commit", author=desk.author(request))
    return _back(request, "transactions", f"{message_id}: {'committed' if what == 'commit' else 'rolled back'}")


def _back(request: Request, page: str, done: str) -> Response:
    base = request.scope.get("root_path", "").rstrip("/")
    return RedirectResponse(url(base, page, done=done), 303)


ROUTES = [
    Route("/schedules", show_schedules),
    Route("/schedules/cancel", cancel, methods=["POST"]),
    Route("/transactions", show_transactions),
    Route("/transactions/decide", decide, methods=["POST"]),
]
