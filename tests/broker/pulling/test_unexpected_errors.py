"""An error that nobody expected answers its own pull, is logged, and keeps no other pull from being answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqclient.broker.pulling import arrivals
from rmqclient.broker.pulling.pending_subscriptions import PendingSubscriptions
from rmqclient.broker.request import Request
from rmqclient.remoting.bodies import Subscription
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue
from tests.broker.pulling.room import PATIENCE_S, Client, PullRoom, pull_room
from tests.support.stores import TOPIC

WAITING: dict[str, Any] = {"sysFlag": 2}


class Planted(Exception):
    """What nobody expects."""


def failing_once(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that fails at its first call."""
    calls = iter(range(10**9))

    def call(*arguments: Any) -> Any:
        if next(calls) == 0:
            raise Planted("planted")
        return method(*arguments)

    return call


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PullRoom]:
    monkeypatch.setattr(arrivals, "LONGEST_SLEEP_S", 0.05)
    with pull_room(tmp_path / "store") as opened:
        yield opened


def test_a_held_pull_that_cannot_be_looked_at_is_answered_and_the_others_as_well(
    room: PullRoom, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        clients = [Client() for _ in range(100)]
        for client in clients:
            assert room.ask(client, 0, **WAITING) is None
        monkeypatch.setattr(room.room, "_look", failing_once(room.room._look))
        room.send("a")
        answers = [await asyncio.wait_for(client.answers.get(), PATIENCE_S) for client in clients]
        assert sorted(answer.code for answer in answers) == [0] * 99 + [ResponseCode.SYSTEM_ERROR]
        # And a pull that comes later hears of the next message
        assert room.ask(clients[0], 1, **WAITING) is None
        room.send("b")
        assert (await asyncio.wait_for(clients[0].answers.get(), PATIENCE_S)).code == 0

    asyncio.run(scenario())
    assert "planted" in caplog.text


def test_a_look_at_all_queues_that_fails_is_made_up_for_by_the_next_one(
    room: PullRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.store.topics.create("others", 1)
    room.rules.subscriptions["others"] = Subscription("others")
    arrivals_of = room.room.held.arrivals
    fail_once, arm = failing_once(lambda _: None), arrivals_of.arm

    def failing_at_others(queue: MessageQueue) -> None:
        if queue.topic == "others":
            fail_once(queue)
        arm(queue)

    async def scenario() -> None:
        client = Client()
        # Given two queues, of which the second one cannot be looked at once
        assert room.ask(client, 0, **WAITING) is None
        assert room.ask(Client(), 0, topic="others", **WAITING) is None
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        monkeypatch.setattr(arrivals_of, "arm", failing_at_others)
        room.send("a")
        assert (await asyncio.wait_for(client.answers.get(), PATIENCE_S)).code == 0

    asyncio.run(scenario())


def test_pulls_that_ask_for_their_queues_are_all_asked_again_when_one_fails(
    room: PullRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.send("a")
    room.rules.is_lease_held = False

    async def scenario() -> None:
        clients = [Client() for _ in range(5)]
        for client in clients:
            assert room.ask(client, 0, **WAITING) is None
        monkeypatch.setattr(room.room, "_look", failing_once(room.room._look))
        room.rules.is_lease_held = True
        answers = [await asyncio.wait_for(client.answers.get(), PATIENCE_S) for client in clients]
        assert sorted(answer.code for answer in answers) == [0] * 4 + [ResponseCode.SYSTEM_ERROR]

    asyncio.run(scenario())


def test_a_late_pull_that_fails_is_answered_and_the_next_ones_are_waited_for(
    room: PullRoom, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room.rules.subscriptions[TOPIC] = Subscription(TOPIC, version=1)

    async def scenario() -> None:
        clients = [Client() for _ in range(3)]
        for client in clients:
            assert room.ask(client, 0, subVersion=2) is None
        monkeypatch.setattr(room.room._pending, "_pull", failing_once(room.room._pending._pull))
        room.rules.subscriptions[TOPIC] = Subscription(TOPIC, version=2)
        answers = [await asyncio.wait_for(client.answers.get(), PATIENCE_S) for client in clients]
        assert sorted(answer.code for answer in answers) == [ResponseCode.SYSTEM_ERROR, 19, 19]

    asyncio.run(scenario())
    assert "planted" in caplog.text


def test_whether_a_pull_is_late_is_asked_again_after_a_failure() -> None:
    async def scenario() -> None:
        client = Client()
        late = PendingSubscriptions(failing_once(lambda _: False), lambda request: request.failure(17, "gone"))
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        late.wait(Request(Frame(RequestCode.PULL_MESSAGE), client))
        assert (await asyncio.wait_for(client.answers.get(), PATIENCE_S)).code == 17

    asyncio.run(scenario())
