"""Current: which message the running code handles, for log lines and for whatever the code calls.

::

    logging.basicConfig(format="%(asctime)s %(message_id)s %(topic)s %(group)s %(attempt)s %(message)s")
    logging.getLogger().handlers[0].addFilter(MessageFields())

A handler's thread has one :class:`Current` for its whole life, and stores each message in it: that costs a few ns,
where setting a context variable for each message costs 140. A coroutine has one of its own, because coroutines take
turns in one thread. What a handler starts in its context, such as ``asyncio.to_thread``, sees the same message.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar

from rmqclient.message import ReceivedMessage

FIELDS = ("message_id", "topic", "group", "attempt")
"""What log lines show of a message."""


class Current:
    """What one thread or one coroutine handles now."""

    __slots__ = ("group", "message")

    def __init__(self, group: str, message: ReceivedMessage | None = None) -> None:
        self.group = group
        self.message = message
        """Of a batch, its first message. None while no handler runs."""

    def enter(self) -> None:
        """Make this what the running thread or coroutine, and what it starts from now on, handles."""
        _current.set(self)


_current: ContextVar[Current | None] = ContextVar("rmqclient_current", default=None)


def current_message() -> ReceivedMessage | None:
    """Return the message that the running handler was called with, of a batch the first; None outside of a handler."""
    current = _current.get()
    return None if current is None else current.message


def log_fields() -> dict[str, str | int]:
    """Return the ``message_id``, ``topic``, ``group`` and ``attempt`` of the running call; empty outside of a handler.

    The attempt counts from 1. A message that comes from the retry topic has the topic to which it was sent.
    """
    current = _current.get()
    if current is None or (message := current.message) is None:
        return {}
    return fields_of(message, current.group)


def fields_of(message: ReceivedMessage, group: str) -> dict[str, str | int]:
    """Return the same of any message: ``extra=`` of a log line about a message that is not handled just then."""
    return {
        "message_id": message.message_id,
        "topic": message.topic,
        "group": group,
        "attempt": message.delivery_attempt,
    }


class MessageFields(logging.Filter):
    """Gives each log record ``message_id``, ``topic``, ``group`` and ``attempt``; it lets every record through.

    Add it to the *handlers* of ``logging``: a filter of a logger does not see the records of the loggers below it. The
    four are empty text in a line that no handler of a message wrote.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields to a record, but those that it has."""
        fields = log_fields()
        for name in FIELDS:
            if name not in record.__dict__:
                setattr(record, name, fields.get(name, ""))
        return True
