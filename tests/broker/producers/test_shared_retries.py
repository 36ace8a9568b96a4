"""Shared retries: what fails at a remote member is tried again by a local one, and counted on."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.failures.dead_letters import Selection, select
from rmqclient.local.backend import local_backend
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.table import request
from rmqclient.store import open_store
from rmqclient.testing import Server, serve
from tests.broker.producers.connected import stored
from tests.client.conftest import consuming
from tests.support.cluster.caller import connected

LONGEST_S = 30.0
SOON = RetryPolicy(max_retries=1, delay_levels=(1,))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serve(tmp_path / "store") as found:
        yield found


class Seen:
    """A handler's view of the messages that it got."""

    def __init__(self, place: str | Path, *, fails: bool) -> None:
        self.messages: queue.Queue[ReceivedMessage] = queue.Queue()
        self.app = App(place)

        @self.app.handler("orders", group="billing", start="earliest", retry=SOON)
        def handle(message: ReceivedMessage) -> None:
            self.messages.put(message)
            if fails:
                raise ValueError("not today")

    def next(self) -> ReceivedMessage:
        """Return the next message."""
        return self.messages.get(timeout=LONGEST_S)


def test_a_message_that_java_gives_back_comes_to_a_local_member(server: Server) -> None:
    local = Seen(server.root, fails=False)
    with Producer(server.root) as producer:
        sent = producer.send(Message("orders", b"again"))
    with consuming(server.root, local.app):
        assert local.next().delivery_attempt == 1
        with connected(server.address) as member:
            back: dict[str, Any] = {
                "offset": sent.commit_log_offset,
                "group": "billing",
                "delayLevel": 1,
                "maxReconsumeTimes": 16,
            }
            stored(member, request(RequestCode.CONSUMER_SEND_MSG_BACK, **back))
        again = local.next()
    assert (again.topic, again.body, again.delivery_attempt) == ("orders", b"again", 2)
    assert again.message_id == sent.message_id


def test_a_message_that_fails_over_the_network_comes_to_a_local_member_and_then_to_the_dead_letters(
    server: Server,
) -> None:
    remote, local = Seen(server.url, fails=True), Seen(server.root, fails=True)
    with Producer(server.url) as producer:
        sent = producer.send(Message("orders", b"again"))
    with consuming(server.url, remote.app):
        assert remote.next().delivery_attempt == 1
    with consuming(server.root, local.app):
        again = local.next()
        assert (again.topic, again.delivery_attempt, again.message_id) == ("orders", 2, sent.message_id)
    with open_store(server.root) as store:
        (letter,) = select(local_backend(store), "billing", Selection())
        assert (letter.topic, letter.attempts, letter.message.message_id) == ("orders", 2, sent.message_id)
        assert [failure["text"] for failure in letter.failures] == ["not today"] * 2
