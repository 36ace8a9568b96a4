"""Messages: searching, and everything about one of them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rmqclient.admin.life import Step, life_of
from rmqclient.backend import Backend
from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.looking.bodies import body_of
from rmqclient.failures.failure import HISTORY
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageQueue
from rmqclient.store.errors import MessageExpired, StoreBusy, StoreCorrupt, StoreFull

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


ROUTES = [
    Route("/messages/{topic}/{queue_id:int}/{offset:int}", show_one),
]
