"""What waits: messages for their time or their next attempt, schedules, and transactions for a decision."""

from __future__ import annotations

import datetime
import re
from itertools import islice

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rmqclient.admin.life import life_of
from rmqclient.backend import Backend
from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.desk.forms import Form, WrongInput, action, asked
from rmqclient.dashboard.desk.rendering import url
from rmqclient.dashboard.looking.bodies import brief
from rmqclient.schedules import waiting
from rmqclient.schedules.standing import Standing, standing_of
from rmqclient.schedules.waiting import Key, Wait
from rmqclient.sending import transactions
from rmqclient.sending.transactions import OpenTransaction
from rmqclient.store import DELAYS, WorkerState, WorkerStatus, clock
from rmqclient.store.errors import StoreBusy, StoreFull

_PAGE = 100
_TABS = ("delayed", "retries", "crons")
_DONE = {"commit": "committed", "rollback": "rolled back"}


def show_schedules(request: Request) -> Response:
    """Answer one of three tabs: messages that are delayed, those that come again, and what is sent by the clock.

    ``?after=`` goes on behind the last message of a page, however many were delivered meanwhile.
    """
    desk = desk_of(request)
    tab, topic = asked(request, "tab") or _TABS[0], asked(request, "topic")
    if tab not in _TABS:
        raise WrongInput(f"tab {tab!r}: there are {', '.join(_TABS)}")
    rows: list[Wait] = []
    crons: list[tuple[Standing, list[str]]] = []
    overdue: list[WorkerStatus] = []
    if tab == "crons":
        now = datetime.datetime.fromtimestamp(clock.wall_ms() / 1000, datetime.UTC)
        backend = desk.backend()
        crons = [_cron(backend, standing_of(backend, cron, now)) for cron in desk.crons]
        crons.sort(key=lambda each: (each[0].next is None, each[0].next or now))
        with desk.reading() as reading:
            overdue = [each for each in reading.workers() if each.state is WorkerState.OVERDUE]
    else:
        known = waiting.in_order(desk.store(), after=_wait_key(asked(request, "after")))
        wanted = (each for each in known if (each.kind == "delayed") is (tab == "delayed") and _is_for(each, topic))
        rows = list(islice(wanted, _PAGE + 1))
    return desk.page(
        request,
        "waiting/schedules.html",
        tab=tab,
        topic=topic,
        rows=[(each, brief(each.message)) for each in rows[:_PAGE]],
        more=".".join(map(str, rows[_PAGE - 1].key)) if len(rows) > _PAGE else "",
        is_paged=bool(asked(request, "after")),
        crons=crons,
        overdue=overdue,
        has_application=desk.has_application,
        levels=DELAYS,
        done=asked(request, "done"),
        wrong=asked(request, "wrong"),
    )


def ask_to_cancel(request: Request) -> Response:
    """Answer the question before a delivery is cancelled, with what the message is."""
    desk = desk_of(request)
    number = asked(request, "number")
    store = desk.store()
    found = next(
        (each for each in waiting.in_order(store) if not each.key.level and str(each.key.number) == number), None
    )
    if found is None:
        return _back(request, "schedules", wrong="This message does not wait any more: it was delivered or cancelled.")
    return desk.page(request, "waiting/cancel.html", wait=found, text=brief(found.message))


def show_transactions(request: Request) -> Response:
    """Answer the transactions that are undecided: first those that only a person decides."""
    desk = desk_of(request)
    known = sorted(transactions.select(desk.backend()), key=_transaction_key)
    after = asked(request, "after")
    left = [each for each in known if not after or _written(_transaction_key(each)) > after]
    return desk.page(
        request,
        "waiting/transactions.html",
        rows=[(each, brief(each.message)) for each in left[:_PAGE]],
        more=_written(_transaction_key(left[_PAGE - 1])) if len(left) > _PAGE else "",
        is_paged=bool(after),
        known=len(known),
        abandoned=sum(each.given_up for each in known),
        done=asked(request, "done"),
        wrong=asked(request, "wrong"),
    )


def ask_to_decide(request: Request) -> Response:
    """Answer the question before a transaction is committed or rolled back, with what happens then."""
    desk = desk_of(request)
    message_id, what = asked(request, "id"), asked(request, "what")
    _check(what)
    found = transactions.select(desk.backend(), message_id=message_id)
    if not found:
        return _back(request, "transactions", wrong=f"{message_id} is decided already.")
    return desk.page(request, "waiting/decide.html", transaction=found[0], what=what, text=brief(found[0].message))


@action
def cancel(request: Request, form: Form) -> Response:
    """Cancel the delivery of one message that waits for its time."""
    desk = desk_of(request)
    message_id = form.one("id")
    with desk.acting(request, "cancel", message_id=message_id) as facts:
        facts["cancelled"] = is_cancelled = waiting.cancel(desk.store(), message_id, author=desk.author(request))
    if not is_cancelled:
        return _back(request, "schedules", wrong=f"Nothing was cancelled: {message_id} does not wait for its time.")
    return _back(request, "schedules", done=f"The delivery of {message_id} was cancelled.")


@action
def decide(request: Request, form: Form) -> Response:
    """Commit one transaction, or roll it back."""
    desk = desk_of(request)
    message_id, what = form.one("id"), form.one("what")
    _check(what)
    found = transactions.select(desk.backend(), message_id=message_id)
    if not found:
        return _back(request, "transactions", wrong=f"{message_id} is decided already.")
    with desk.acting(request, what, message_id=message_id, group=found[0].group):
        transactions.decide(desk.backend(), found[0], commit=what == "commit", author=desk.author(request))
    return _back(request, "transactions", done=f"{message_id} was {_DONE[what]}.")


def _check(what: str) -> None:
    if what not in _DONE:
        raise WrongInput(f"{what!r}: a transaction is committed, or rolled back by rollback")


def _cron(backend: Backend, standing: Standing) -> tuple[Standing, list[str]]:
    """Return how a schedule stands, and in words how each group does with its last message."""
    if standing.message is None:
        return standing, []
    try:
        life = life_of(backend, standing.message)
    except (StoreFull, StoreBusy) as error:
        return standing, [str(error)]
    last = {step.event: f"{step.event.removeprefix('group ')}: {step.detail}" for step in life if step.standing}
    return standing, list(last.values())


def _is_for(wait: Wait, topic: str) -> bool:
    return topic in ("", wait.topic, wait.group)


def _wait_key(text: str) -> Key | None:
    if not text:
        return None
    found = re.fullmatch(r"([0-9]{1,18})\.([0-9]{1,2})\.([0-9]{1,18})", text)
    if found is None:
        raise WrongInput(f"after {text!r}: follow the link to later messages")
    return Key(*map(int, found.groups()))


def _transaction_key(each: OpenTransaction) -> tuple[bool, int, str]:
    return not each.given_up, each.message.born_timestamp, each.message.message_id


def _written(key: tuple[bool, int, str]) -> str:
    """Return a key as text that sorts like the key."""
    return f"{key[0]:d}.{key[1]:015}.{key[2]}"


def _back(request: Request, page: str, **said: str) -> Response:
    base = request.scope.get("root_path", "").rstrip("/")
    return RedirectResponse(url(base, page, **said), 303)


ROUTES = [
    Route("/schedules", show_schedules),
    Route("/schedules/cancel", ask_to_cancel, methods=["GET"]),
    Route("/schedules/cancel", cancel, methods=["POST"]),
    Route("/transactions", show_transactions),
    Route("/transactions/decide", ask_to_decide, methods=["GET"]),
    Route("/transactions/decide", decide, methods=["POST"]),
]
