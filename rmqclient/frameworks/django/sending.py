"""Sending: a message that is sent when a transaction of Django commits."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

from django.db import transaction

from rmqclient.codecs import encoded
from rmqclient.duration import Duration
from rmqclient.frameworks.django.application import app
from rmqclient.message import Message
from rmqclient.names import check_sharding_key
from rmqclient.sending.arguments import check_message
from rmqclient.sending.due_time import due_ms


def send_on_commit(
    message: Message,
    sharding_key: str | None = None,
    *,
    using: str | None = None,
    delay: Duration | None = None,
    deliver_at: Any = None,
) -> str:
    """Send a message when the present transaction of a database commits, or at once if none is open.

    Returns a key, ``commit-`` and 32 digits, which becomes one of the message's keys. A message of a transaction that
    is rolled back is not sent. If the process dies between the commit and the send, it is lost:
    :data:`rmqclient.frameworks.django.outbox` loses none. A ``delay`` counts from the commit.

    Raises MessageRejected for a body that cannot be encoded and an empty sharding key, and ValueError for a time, at
    once; after the commit what :meth:`rmqclient.Producer.send` raises.
    """
    check_message(message, "send_on_commit")
    due_ms(None, delay, deliver_at)
    check_sharding_key(sharding_key)
    key = f"commit-{secrets.token_hex(16)}"
    made = with_key(message, key)
    send = partial(_send, made, sharding_key, delay, deliver_at)
    transaction.on_commit(send, using=using)
    return key


def with_key(message: Message, key: str) -> Message:
    """Return a message with one more key, and its body as bytes. Raises MessageRejected."""
    whole = encoded(message)
    return Message(
        whole.topic,
        whole.body,
        tags=whole.tags,
        keys=[*whole.keys, key],
        properties=whole.properties,
        flag=whole.flag,
    )


def _send(message: Message, sharding_key: str | None, delay: Duration | None, deliver_at: Any) -> None:
    app.shared_producer.send(message, sharding_key=sharding_key, delay=delay, deliver_at=deliver_at)
