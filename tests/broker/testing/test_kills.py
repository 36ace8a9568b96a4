"""Sends that were answered are there after ``kill -9`` of the server, and the client goes on by itself."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from rmqclient import Message, Producer, PullConsumer
from rmqclient.errors import QueueError
from rmqclient.testing import serve

ROUNDS = 3
AT_ONCE = 40
PATIENCE_S = 20.0


@pytest.mark.guarantee("G46")
def test_what_was_answered_is_there_after_the_server_was_killed_and_the_client_goes_on(tmp_path: Path) -> None:
    answered: set[bytes] = set()
    with serve(tmp_path / "store") as server, Producer(server.url) as producer:
        producer.create_topic("orders", 2)
        for life in range(ROUNDS):
            for number in range(AT_ONCE):
                answered.add(sent(producer, b"%d %d" % (life, number)))
            server.restart()
        answered.add(sent(producer, b"last"))
    assert len(answered) == ROUNDS * AT_ONCE + 1
    with PullConsumer(tmp_path / "store", group="audit") as consumer:
        stored = set()
        for queue in consumer.queues("orders"):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                result = consumer.pull(queue, offset)
                stored |= {message.body for message in result.messages}
                offset = result.next_offset
    assert stored >= answered


def sent(producer: Producer, body: bytes) -> bytes:
    """Send until the server has answered: it may be starting."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(QueueError):
            producer.send(Message("orders", body))
            return body
    raise AssertionError("the client does not go on")
