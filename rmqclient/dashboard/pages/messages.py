"""Messages: searching, and everything about one of them."""

from __future__ import annotations

import re

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rmqclient.admin.export import exported
from rmqclient.admin.life import Step, life_of
from rmqclient.backend import Backend
from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.desk.forms import WrongInput, asked, asked_number, moment
from rmqclient.dashboard.looking.bodies import body_of, brief
from rmqclient.dashboard.looking.search import LOOKED_AT_MOST, Found, Search, WrongQuery, search
from rmqclient.errors import UnknownTopic
from rmqclient.failures.failure import HISTORY
from rmqclient.message import ReceivedMessage
from rmqclient.names import is_of_application
from rmqclient.store import MessageQueue
from rmqclient.store.errors import MessageExpired, StoreBusy, StoreCorrupt, StoreFull

_FILTERS = ("topic", "id", "key", "place", "since", "until", "where", "limit")
_MOST = 500
_TONES = {
    "failed": "bad",
    "not handled": "bad",
    "dead letter": "bad",
    "given up": "bad",
    "hangs": "bad",
    "sent back": "warn",
    "retry stored": "busy",
    "begun": "busy",
    "runs": "busy",
    "waits": "busy",
    "stored": "good",
    "handled": "good",
    "finished": "good",
}
"""Colours of the events of a message, and of how a group stands with it; the others are calm."""


def show_all(request: Request) -> Response:
    """Answer a search, whose conditions are all in the URL; ``?format=jsonl`` answers with a file for `rmq send`."""
    desk = desk_of(request)
    backend = desk.backend()
    filters = {name: asked(request, name) for name in _FILTERS}
    found, wrong = Found([], 0, is_complete=True), ""
    try:
        found = search(backend, _wanted(request))
    except (WrongInput, WrongQuery, UnknownTopic) as error:
        wrong = str(error)
    if asked(request, "format") == "jsonl" and not wrong:
        return _file(found.messages)
    return desk.page(
        request,
        "messages/all.html",
        topics=sorted(backend.topics.names(), key=lambda topic: (not is_of_application(topic), topic)),
        filters=filters,
        is_asked=bool(filters["topic"] or filters["id"]),
        found=found,
        rows=[(message, brief(message)) for message in found.messages],
        wrong=wrong,
        most=LOOKED_AT_MOST,
    )


def show_one(request: Request) -> Response:
    """Answer the page of the message at a place."""
    desk = desk_of(request)
    backend = desk.backend()
    queue = MessageQueue(request.path_params["topic"], request.path_params["queue_id"])
    offset = request.path_params["offset"]
    low, high = backend.queues.span(queue)
    facts = {"queue": queue, "offset": offset, "low": low, "high": high}
    try:
        message = backend.queues.message_at(queue, offset)
    except (MessageExpired, StoreCorrupt) as error:
        return desk.page(request, "messages/gone.html", status=404, text=str(error), **facts)
    return desk.page(
        request,
        "messages/one.html",
        message=message,
        properties={name: value for name, value in message.properties.items() if name != HISTORY},
        body=body_of(message),
        life=_life(backend, message),
        tones=_TONES,
        **facts,
    )


def _life(backend: Backend, message: ReceivedMessage) -> list[Step] | str:
    """Return what happened to a message, or why that cannot be read: the message is shown all the same."""
    try:
        return life_of(backend, message)
    except (StoreFull, StoreBusy) as error:
        return str(error)


def _wanted(request: Request) -> Search:
    return Search(
        topic=asked(request, "topic"),
        message_id=asked(request, "id"),
        key=asked(request, "key"),
        place=_place(asked(request, "place")),
        since_ms=moment(asked(request, "since")),
        until_ms=moment(asked(request, "until")),
        where=asked(request, "where"),
        limit=asked_number(request, "limit", 50, _MOST),
    )


def _place(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    found = re.fullmatch(r"([0-9]{1,5}):([0-9]{1,18})", text)
    if found is None:
        raise WrongInput(f"place {text!r}: write queue:offset, such as 2:7731")
    return int(found[1]), int(found[2])


def _file(messages: list[ReceivedMessage]) -> Response:
    lines = [orjson.dumps(exported(each)) for each in messages]
    headers = {"Content-Disposition": 'attachment; filename="messages.jsonl"'}
    return Response(b"\n".join([*lines, b""]), media_type="application/x-ndjson", headers=headers)


ROUTES = [
    Route("/messages", show_all),
    Route("/messages/{topic}/{queue_id:int}/{offset:int}", show_one),
]
