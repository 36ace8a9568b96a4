"""Export: a message as an object of JSON, from which ``rmq send --jsonl`` makes it again."""

from __future__ import annotations

import base64
from typing import Any

from rmqclient.errors import BodyUnreadable, NotInstalled
from rmqclient.message import ReceivedMessage


def exported(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message; a body that is not UTF-8 stands under ``body_base64``, and ``body`` is then None.

    So does the stored body of one that cannot be opened, and ``body_error`` says why.
    """
    body, error = opened(message)
    text = _as_text(body) if error is None else None
    row: dict[str, Any] = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "sharding_key": message.sharding_key,
        "properties": dict(message.properties),
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "body": text,
    }
    if message.flag:
        row["flag"] = message.flag
    if text is None:
        row["body_base64"] = base64.b64encode(body).decode("ascii")
    if error is not None:
        row["body_error"] = error
    return row


def opened(message: ReceivedMessage) -> tuple[bytes, str | None]:
    """Return a body, and why it is the one that is stored when it cannot be opened."""
    try:
        return message.open_body(), None  # not kept: of a list that would be all of them
    except (BodyUnreadable, NotInstalled) as error:
        return message.stored_body, str(error)


def _as_text(body: bytes) -> str | None:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None
