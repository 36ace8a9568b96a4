"""What clients of a server send, take, finish and give back is counted like that of local processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.metrics import GroupTotals, Sampler, by_group, by_topic
from rmqclient.store import open_store
from rmqclient.testing import serve
from tests.metrics.conftest import wait_for

SENT = 20


@pytest.mark.guarantee("G50")
def test_a_remote_member_is_counted_by_its_pulls_commits_and_send_backs(root: Path) -> None:
    # Given a server, messages that were sent through it, and a remote member that fails one of them
    with serve(root) as server, Sampler(root) as sampler:
        with Producer(server.url, group="shop") as producer:
            for number in range(SENT):
                producer.send(Message("orders", b"%d" % number))
        app = App(server.url)

        @app.handler("orders", group="billing")
        def bill(message: ReceivedMessage) -> None:
            if message.body == b"7":
                raise ValueError(message.body)

        def billing() -> GroupTotals | None:
            return by_group(sampler.sample()).get(("billing", "orders"))

        # When it has committed them
        consumer = PushConsumer(server.url, app.handlers)
        consumer.start()
        wait_for(lambda: (found := billing()) is not None and found.handled == SENT, "all are committed")
        consumer.close()

        # Then each was counted
        found = billing()
        assert found is not None
        assert (found.delivered, found.failed, found.dead_lettered, found.lag) == (SENT, 1, 0, 0)
        counted = by_topic(sampler.sample())["orders"]
    with open_store(root, housekeeping=False) as store:
        queues = store.topics.queues("orders")
        offsets = [(queue, offset) for queue in queues for offset in range(store.topics.max_offset(queue))]
        sizes = [store.messages.at(queue, offset).size for queue, offset in offsets]
    assert (counted.messages_in, counted.bytes_in) == (SENT, sum(sizes))
    assert found.bytes_out == sum(sizes)
