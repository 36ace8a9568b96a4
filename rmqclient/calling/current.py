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
from functools import partial
from typing import cast

from rmqclient.backend.group_protocols import Grant, RunningSlot, is_ours
from rmqclient.errors import HandlerError
from rmqclient.message import ReceivedMessage
from rmqclient.steps.steps import Steps
from rmqclient.steps.steps_factory import StepsFactory
from rmqclient.store import handling

FIELDS = ("message_id", "topic", "group", "attempt")
"""What log lines show of a message."""


class Current:
    """What one thread or one coroutine handles now."""

    __slots__ = ("factory", "given", "grant", "group", "running", "steps")

    grant: Grant
    """Of the queue that the message came from. Set before the first message."""

    running: RunningSlot
    """Of the thread or the coroutine. Set before the first message."""

    def __init__(self, group: str, factory: StepsFactory | None = None) -> None:
        self.group = group
        self.factory = factory
        """Makes the steps of messages; None where there are none."""
        self.given: ReceivedMessage | list[ReceivedMessage] | None = None
        """The message, or the messages, of the present call. None while no handler runs."""
        self.steps: Steps | None = None
        """Of the message, or of one before it; None if nobody asked."""

    @property
    def message(self) -> ReceivedMessage | None:
        """The message, of a batch its first one; None while no handler runs."""
        given = self.given
        if isinstance(given, list):
            return given[0] if given else None
        return given

    def enter(self) -> None:
        """Make this what the running thread or coroutine, and what it starts from now on, handles."""
        handling.set(self)

    def steps_of(self, message: ReceivedMessage) -> Steps:
        """Return the steps of the message that the handler was called with: what ``message.steps`` is.

        Raises HandlerError for any other message, and as :meth:`rmqclient.steps.steps_factory.StepsFactory.steps`.
        """
        if self.factory is None or (handled := self.message) is None:
            raise HandlerError("message.steps is for the handler that is called with the message, while it runs")
        if self.steps is not None and self.steps.message is message:
            return self.steps
        steps = self.factory.steps(message, partial(is_ours, self.running, self.grant))
        if message is not handled:
            raise HandlerError(f"message.steps of {message.message_id}: the handler was called with another message")
        self.steps = steps
        return steps


def _current() -> Current | None:
    return cast("Current | None", handling.get())  # only Current.enter sets it


def current_message() -> ReceivedMessage | None:
    """Return the message that the running handler was called with, of a batch the first; None outside of a handler."""
    current = _current()
    return None if current is None else current.message


def log_fields() -> dict[str, str | int]:
    """Return the ``message_id``, ``topic``, ``group`` and ``attempt`` of the running call; empty outside of a handler.

    The attempt counts from 1. A message that comes from the retry topic has the topic to which it was sent.
    """
    current = _current()
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


def begun_steps(message: ReceivedMessage) -> Steps | None:
    """Return the steps of a message whose call has ended just now, if its handler asked for them."""
    current = _current()
    steps = None if current is None else current.steps
    return steps if steps is not None and steps.message is message else None


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
