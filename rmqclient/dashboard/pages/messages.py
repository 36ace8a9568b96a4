"""A message: its body, what became of it in each group, and delivering or sending it again."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rmqclient.admin.export import opened
from rmqclient.admin.life import Step, life_of, own_properties
from rmqclient.backend import Backend
from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.desk.forms import Form, WrongInput, action, asked
from rmqclient.dashboard.desk.rendering import url
from rmqclient.dashboard.looking.answers import answers_of
from rmqclient.dashboard.looking.bodies import body_of, editable, newline_of
from rmqclient.dashboard.looking.waterfall import waterfall_of
from rmqclient.failures import dead_letters
from rmqclient.failures.dead_letters import Selection
from rmqclient.failures.failure import HISTORY
from rmqclient.failures.frames import runs_of
from rmqclient.failures.origin import origin_topic
from rmqclient.failures.retry import copying, dead_letter_topic, flush
from rmqclient.message import Message, ReceivedMessage
from rmqclient.sending.producer import Producer
from rmqclient.store import MessageQueue
from rmqclient.store.errors import MessageExpired, StoreBusy, StoreCorrupt, StoreFull
from rmqclient.store.observe.summary import Group

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
    desk.live.begin()
    backend = desk.backend()
    queue, offset = _place(request)
    low, high = backend.queues.span(queue)
    facts: dict[str, Any] = {"queue": queue, "offset": offset, "low": low, "high": high}
    try:
        message = backend.queues.message_at(queue, offset)
    except (MessageExpired, StoreCorrupt) as error:
        return desk.page(request, "messages/gone.html", status=404, text=str(error), **facts)
    groups = backend.groups.all()
    life = _life(backend, message, groups)
    answers = [] if isinstance(life, str) else answers_of(life, groups)
    return desk.page(
        request,
        "messages/one.html",
        message=message,
        properties={name: value for name, value in message.properties.items() if name != HISTORY},
        body=body_of(message),
        life=life,
        fall=None if isinstance(life, str) else waterfall_of(life, answers, int(time.time() * 1000)),
        alone={each.group for each in groups if dead_letters.takes_retries(each)},
        runs_of=runs_of,
        tones=_TONES,
        done=asked(request, "done"),
        **facts,
    )


def download(request: Request) -> Response:
    """Answer the body of a message as a file, byte for byte and at any size; one that cannot be opened as stored."""
    queue, offset = _place(request)
    body, problem = opened(_message(request))
    ending = "stored" if problem else "txt" if newline_of(body) is not None else "bin"
    name = re.sub(r"[^A-Za-z0-9.-]", "_", f"{queue.topic}-{queue.queue_id}-{offset}")
    headers = {"Content-Disposition": f'attachment; filename="{name}.{ending}"'}
    return Response(body, media_type="application/octet-stream", headers=headers)


def ask(request: Request) -> Response:
    """Ask whether a message shall be delivered once more to one group, or show it for an edited copy of it."""
    desk, message, group = desk_of(request), _message(request), asked(request, "group")
    queue, offset = _place(request)
    body, problem = opened(message)
    return desk.page(
        request,
        "messages/again.html",
        message=message,
        queue=queue,
        offset=offset,
        group=group,
        is_reached=bool(group) and dead_letters.is_reached_alone(desk.backend(), group),
        topic=origin_topic(message),
        size=len(body),
        text=None if problem else editable(body),
        problem=problem,
        own=_own(message),
    )


@action
def deliver(request: Request, form: Form) -> Response:
    """Deliver a message once more to one group, as a first attempt."""
    desk, message, group = desk_of(request), _message(request), form.one("group")
    backend = desk.backend()
    author = desk.author(request)
    if not dead_letters.is_reached_alone(backend, group):
        raise WrongInput(f"{group!r} takes nothing from a retry topic: a broadcast group, or one that never consumed")
    with desk.acting(request, "deliver", group=group, message_id=message.message_id):
        if message.topic == dead_letter_topic(group):
            name = message.topic, message.queue_offset, message.message_id
            only = Selection(among=frozenset((name,)), done=True)
            ((_, sent),) = dead_letters.replay(backend, group, only, only_group=True, author=author)
        else:
            sender = copying(backend)
            place, properties = dead_letters.again(backend, message, group)
            sent = sender.append_copy(message, place, properties, reconsume_times=0)
            flush(backend, sender, sent)
            desk.store().marks.write("replay", group, f"{message.message_id} was sent again", author=author)
    return _to(request, sent.queue, sent.queue_offset, f"Sent to {group} alone, as a first attempt.")


@action
def send(request: Request, form: Form) -> Response:
    """Send a message with the parts of a form, as a new one with an id of its own."""
    desk, message = desk_of(request), _message(request)
    body, _ = opened(message)
    if form.has("body"):
        newline = newline_of(body)
        body = form.all("body")[-1].replace("\r\n", newline or "\n").encode()
    topic = origin_topic(message)
    new = Message(
        topic,
        body,
        tags=form.one("tag") or None,
        keys=tuple(form.one("keys").split()),
        properties=_own(message),
    )
    with desk.acting(request, "send", topic=topic, like=message.message_id), Producer(desk.store()) as producer:
        sent = producer.send(new, sharding_key=message.sharding_key)
    return _to(request, sent.queue, sent.queue_offset, f"Sent to {topic} as a new message.")


def _place(request: Request) -> tuple[MessageQueue, int]:
    path = request.path_params
    return MessageQueue(path["topic"], path["queue_id"]), path["offset"]


def _message(request: Request) -> ReceivedMessage:
    queue, offset = _place(request)
    try:
        return desk_of(request).backend().queues.message_at(queue, offset)
    except (MessageExpired, StoreCorrupt) as error:
        raise HTTPException(404, str(error)) from error


def _to(request: Request, queue: MessageQueue, offset: int, done: str) -> Response:
    base = request.scope.get("root_path", "").rstrip("/")
    return RedirectResponse(url(base, "messages", queue.topic, queue.queue_id, offset, done=done), 303)


def _own(message: ReceivedMessage) -> dict[str, str]:
    """Return the properties that the application gave a message."""
    return {name: value for name, value in own_properties(message.properties).items() if name != HISTORY}


def _life(backend: Backend, message: ReceivedMessage, groups: Sequence[Group]) -> list[Step] | str:
    """Return what happened to a message, or why that cannot be read: the message is shown all the same."""
    try:
        return life_of(backend, message, groups)
    except (StoreFull, StoreBusy) as error:
        return str(error)


_ONE = "/messages/{topic}/{queue_id:int}/{offset:int}"
ROUTES = [
    Route(_ONE, show_one),
    Route(f"{_ONE}/body", download),
    Route(f"{_ONE}/again", ask),
    Route(f"{_ONE}/deliver", deliver, methods=["POST"]),
    Route(f"{_ONE}/send", send, methods=["POST"]),
]
