"""Received messages without a store: a record written by the reference codec, read by the kernel."""

from __future__ import annotations

from store import ReceivedMessage, record
from tests.support import reference


def received(body: bytes, topic: str = "orders") -> ReceivedMessage:
    """Return a message with this body, as a consumer gets it."""
    written = reference.encode(reference.ReferenceRecord(topic=topic, body=body))
    outcome = record.decode(written, 0, 0)
    assert isinstance(outcome, record.Record)
    return outcome.message
