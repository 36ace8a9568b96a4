"""Signals: sends a signal to a message that waits for it, now or later."""

from __future__ import annotations

from rmqclient.backend.backend import Backend
from rmqclient.errors import StepError
from rmqclient.names import check_group
from rmqclient.steps.journal import Journal
from rmqclient.steps.record import Record, check_name
from rmqclient.steps.stored_copies import id_of
from rmqclient.steps.values import coding_of


def signal(backend: Backend, group: str, message_id: str, name: str, payload: object) -> bool:
    """Store a signal for a message of a group; return whether that woke it. See :meth:`rmqclient.Producer.signal`."""
    journal = Journal(backend, check_group(group), "signal()")
    message = backend.messages.by_id(message_id)
    if message is None:
        raise StepError(f"no message has the id {message_id!r}: give the message_id of the message that waits")
    form, body, _ = coding_of(type(payload)).encoded(f"signal {check_name(name)!r}", payload, journal.limit)
    journal.add(id_of(message), Record(kind="signal", name=name, form=form, body=body))
    return journal.look_after(id_of(message))
