"""Received messages without a store: a record written by the reference codec, read by the kernel."""

from __future__ import annotations

from rmqclient.store import ReceivedMessage
from rmqclient.store.log import record
from tests.support.oracle import reference


def received(body: bytes, topic: str = "orders", sys_flag: int = 0) -> ReceivedMessage:
    """Return a message with this body in its record, as a consumer gets it."""
    written = reference.encode(reference.ReferenceRecord(topic=topic, body=body, sys_flag=sys_flag))
    outcome = record.decode(written, 0, 0)
    assert isinstance(outcome, record.Record)
    return outcome.message
