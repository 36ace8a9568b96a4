"""The time of a server for tests: moved forward, or faster than the host's, and never that of a store that stays."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rmqclient import Message, Producer, PullConsumer
from rmqclient.errors import ConfigMismatch
from rmqclient.message import ReceivedMessage
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.testing import serve
from tests.broker.life.serving import refused, serving
from tests.broker.net.loopback import caller

TWO_HOURS = 18
"""The longest delay level."""


def pulled(url: str, topic: str, wait_s: float) -> list[ReceivedMessage]:
    """Return what comes into the queues of a topic within a time."""
    with PullConsumer(url, group="looking") as consumer:
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            found = [each for queue in consumer.queues(topic) for each in consumer.pull(queue, 0, wait=0.05).messages]
            if found:
                return found
    return []


def test_what_waits_for_two_hours_comes_when_the_clock_of_the_server_is_moved() -> None:
    with serve() as server:
        with Producer(server.url) as producer:
            producer.send(Message("orders", b"later"), delay_level=TWO_HOURS)
            producer.send(Message("orders", b"now"))
        assert [each.body for each in pulled(server.url, "orders", 30)] == [b"now"]
        server.advance(hours=2)
        with Producer(server.url) as producer:
            producer.send(Message("other", b"x"))
        deadline = time.monotonic() + 30
        while len(found := pulled(server.url, "orders", 30)) < 2:
            assert time.monotonic() < deadline
        assert {each.body for each in found} == {b"now", b"later"}
        # And the time does not go back when the server is killed
        server.restart()
        with Producer(server.url) as producer:
            sent = producer.send(Message("third", b"x"))
        assert sent.message_id
        (third,) = pulled(server.url, "third", 30)
        assert third.store_timestamp / 1000 > time.time() + 7_000


def test_a_server_may_run_faster_and_is_moved_by_a_setting(tmp_path: Path) -> None:
    with serving(tmp_path, "--ephemeral", "--clock-factor", "1000") as server:
        url = f"rocketmq://{server.address}"
        with Producer(url) as producer:
            producer.send(Message("orders", b"later"), delay_level=9)  # five minutes
        assert pulled(url, "orders", 30)
        with caller(server.address) as client:
            done = client.ask(Frame(RequestCode.UPDATE_BROKER_CONFIG, body=b"advanceClock=7200000"))
            assert done.code == 0
            for wrong in (b"-1", b"2h", b"", b"9" * 40):
                answer = client.ask(Frame(RequestCode.UPDATE_BROKER_CONFIG, body=b"advanceClock=" + wrong))
                assert "advanceClock" in (answer.remark or "")


def test_the_clock_of_a_store_that_stays_is_the_hosts(tmp_path: Path) -> None:
    assert "--ephemeral" in refused(str(tmp_path / "store"), "--clock-factor", "10")
    assert "1<=x<=1000" in refused("--ephemeral", "--clock-factor", "0")
    with serve(tmp_path / "store") as server:
        with pytest.raises(ConfigMismatch):
            server.advance(hours=1)
        with Producer(server.url) as producer:
            producer.send(Message("orders", b"x"))
        (found,) = pulled(server.url, "orders", 30)
        assert found.store_timestamp / 1000 == pytest.approx(time.time(), abs=60)
