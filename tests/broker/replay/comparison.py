"""Comparison: what must be the same in an answer of ours and in that of a real broker.

The response code; which fields the header has; of a body of records the topics and the bodies of the messages, in
order; of a body of JSON which keys it has, at every depth; of a body of properties their names. Values are not
compared: they are addresses, times, offsets and figures of another broker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rmqclient.remoting.bodies.fastjson import read
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.errors import BodyError
from rmqclient.remoting.frame import Frame
from rmqclient.store import ReceivedMessage
from rmqclient.store.errors import QueueError
from rmqclient.store.wire import decode_records

_OF_RECORDS = {
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TABLE = re.compile(r".*(Table|Map|Addrs|table)")


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs in one answer."""

    session: str
    code: int
    """Of the request."""
    what: str
    """``code``, ``fields``, ``messages``, ``body``, or ``missing`` for an answer or a request that did not come."""
    recorded: str
    live: str
    topic: str = ""
    """That the request is about; none for requests without one."""

    def __str__(self) -> str:
        return f"{self.session}: {self.code} {self.topic}: {self.what}: recorded {self.recorded}, now {self.live}"


def difference(
    session: str, code: int, recorded: Frame, live: Frame, body: bytes | None, topic: str = ""
) -> Difference | None:
    """Return the first thing that differs. ``body`` is the recorded one; None if it was too long to be recorded."""
    pairs = [
        ("code", str(recorded.code), str(live.code)),
        ("fields", " ".join(sorted(recorded.fields)), " ".join(sorted(live.fields))),
    ]
    if body is not None and code in _OF_RECORDS and (body or live.body):
        pairs.append(("messages", str(told(records_of(body))), str(told(records_of(live.body)))))
    elif body is not None:
        pairs.append(("body", str(shape_of_body(body)), str(shape_of_body(live.body))))
    for what, was, now in pairs:
        if was != now:
            return Difference(session, code, what, was[:300], now[:300], topic)
    return None


def records_of(body: bytes) -> list[ReceivedMessage]:
    """Return the messages of a body of records; none of a body that has something else."""
    try:
        return decode_records(body)
    except QueueError:
        return []


def told(messages: list[ReceivedMessage]) -> list[tuple[str, bytes]]:
    """Return what has to be the same of messages."""
    return [(message.topic, message.stored_body[:40]) for message in messages]


def shape_of_body(body: bytes) -> object:
    """Return the keys of a body of JSON or of properties; nothing for a body without keys."""
    if not body:
        return None
    try:
        return shape(read(body))
    except BodyError:
        lines = body.decode(errors="replace").splitlines()
        return sorted({line.partition("=")[0] for line in lines if "=" in line}) or "text"


def shape(value: object, key: str = "") -> object:
    """Return a value with its keys, and without its values. Tables, whose keys are values, have the keys ``*``."""
    if isinstance(value, list):
        return [] if not value else [_merged([shape(item) for item in value])]
    if not isinstance(value, dict):
        return ""
    if _TABLE.fullmatch(key) or not all(_NAME.fullmatch(name) for name in value):
        return {"*": _merged([shape(item) for item in value.values()])} if value else {}
    return {name: shape(value[name], name) for name in sorted(value)}


def _merged(shapes: list[object]) -> object:
    """Return the richest of the shapes of things of one kind: optional keys are those that any of them has."""
    dicts = [item for item in shapes if isinstance(item, dict)]
    if not dicts:
        return max(shapes, key=lambda item: len(str(item)), default="")
    keys = sorted({key for item in dicts for key in item})
    return {key: _merged([item[key] for item in dicts if key in item]) for key in keys}
