"""Groups of RocketMQ's Java clients whose names are longer than the store's, against ``rmq serve``."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient import Producer
from rmqclient.testing import serve
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, why_not
from tests.interop.serve.members import eventually
from tests.interop.serve.programs import java, taker

REASON = why_not(BROKER_4_9_7, BROKER_5_3_3)
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)

SENT = 8
LONG_S = 60.0


@pytest.mark.parametrize("group", ["g" * 121, "g" * 255, "billing|reports"], ids=["121", "255", "bar"])
@pytest.mark.parametrize("release", [BROKER_4_9_7, BROKER_5_3_3])
def test_a_java_consumer_of_any_group_that_it_accepts_gets_each_message_once(
    tmp_path: Path, release: str, group: str
) -> None:
    program = java(release, tmp_path / "client")
    with serve(tmp_path / "store") as server, Producer(server.root) as producer:
        producer.create_topic("orders", 4)
        arguments = (server.address, group, "orders", "concurrently", "*")
        with taker(program, *arguments) as first:
            for number in range(SENT):
                producer.send("orders", b"%d" % number)
            eventually(lambda: len(first.bodies) >= SENT, "the first messages", LONG_S)
        with taker(program, *arguments) as second:
            producer.send("orders", b"later")
            eventually(lambda: bool(second.bodies), "the message that came later", LONG_S)
    assert sorted(first.bodies) == sorted(str(number) for number in range(SENT))
    assert second.bodies == ["later"]
