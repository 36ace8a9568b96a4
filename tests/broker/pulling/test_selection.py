"""Which messages a pull brings: by tags, by SQL92, by the subscription of the group or its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.broker.pulling import pending_subscriptions, selection
from rmqclient.broker.pulling.selection import MOST_JUDGED
from rmqclient.remoting.bodies import Subscription
from rmqclient.remoting.frame import Frame
from rmqclient.store.wire import decode_records
from tests.broker.pulling.room import PATIENCE_S, Client, PullRoom, pull_room
from tests.support.stores import TOPIC


@pytest.fixture
def room(tmp_path: Path) -> Iterator[PullRoom]:
    with pull_room(tmp_path / "store") as opened:
        yield opened


def found(answer: Frame) -> tuple[int, list[int], int]:
    numbers = [message.queue_offset for message in decode_records(answer.body)]
    return answer.code, numbers, int(answer.fields["nextBeginOffset"])


def own(expression: str, kind: str = "TAG", flags: int = 4) -> dict[str, object]:
    return {"sysFlag": flags, "subscription": expression, "expressionType": kind}


def test_tags_are_those_of_the_group_or_of_the_pull(room: PullRoom) -> None:
    room.send("a", "b", None, "c", "a")
    room.rules.subscriptions[TOPIC] = Subscription(TOPIC, "a || c", tags=("a", "c"), codes=(97, 99))
    assert found(room.pull_now(0)) == (0, [0, 3, 4], 5)
    assert found(room.pull_now(0, **own(" b ||"))) == (0, [1], 5)
    assert found(room.pull_now(0, **own("*"))) == (0, [0, 1, 2, 3, 4], 5)


def test_a_group_that_tells_only_its_expression_is_understood(room: PullRoom) -> None:
    room.send("a", "b")
    room.rules.subscriptions[TOPIC] = Subscription(TOPIC, "b")
    assert found(room.pull_now(0)) == (0, [1], 2)


def test_what_nobody_wants_is_passed_over_with_progress(room: PullRoom) -> None:
    room.send("a", "a")
    answer = room.pull_now(0, **own("b", flags=6))
    assert found(answer) == (20, [], 2)
    assert answer.remark == "NO_MATCHED_MESSAGE"


def test_one_pull_looks_through_a_bounded_part_of_the_queue(room: PullRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_COMPARED", 300)
    room.send(*["a"] * 301, "rare")
    assert found(room.pull_now(0, **own("rare"))) == (20, [], 300)
    assert found(room.pull_now(300, **own("rare"))) == (0, [301], 302)
    assert found(room.pull_now(0, **own("rare || other"))) == (20, [], 150)
    assert found(room.pull_now(0, **own("n > 100000", "SQL92"))) == (20, [], MOST_JUDGED)


@pytest.mark.parametrize(
    ("expression", "numbers"),
    [
        ("n > 2", [3, 4]),
        ("n = 1 OR TAGS = 'd'", [1, 3]),
        ("n IS NULL", []),
        ("missing > 2", []),
        ("n BETWEEN 1 AND 2", [1, 2]),
    ],
)
def test_sql92_is_judged_by_the_properties(room: PullRoom, expression: str, numbers: list[int]) -> None:
    room.send("a", "b", "c", "d", "e")
    room.rules.subscriptions[TOPIC] = Subscription(TOPIC, expression, expression_type="SQL92")
    assert found(room.pull_now(0))[1] == numbers


@pytest.mark.parametrize(
    ("expression", "kind"), [("n >", "SQL92"), ("n > 1", "JAVASCRIPT"), ("||", "TAG"), ("a" * 5_000, "TAG")]
)
def test_an_expression_that_cannot_be_read_is_refused_and_nothing_is_sent(
    room: PullRoom, expression: str, kind: str
) -> None:
    room.send("a")
    answer = room.pull_now(0, **own(expression, kind))
    assert (answer.code, answer.body) == (23, b"")
    assert len(answer.remark or "") < 400


def test_a_filter_class_is_refused(room: PullRoom) -> None:
    room.rules.subscriptions[TOPIC] = Subscription(TOPIC, "a.B", class_filter_mode=True)
    assert room.pull_now(0).code == 1


def test_a_pull_waits_for_the_heartbeat_with_its_subscription(room: PullRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_subscriptions, "LONGEST_WAIT_S", 3 * PATIENCE_S)
    room.send("a", "b")
    room.rules.subscriptions[TOPIC] = Subscription(TOPIC, "a", version=1)

    async def scenario() -> None:
        pull = asyncio.create_task(room.pull(0, subVersion=2))
        await asyncio.sleep(0)
        room.rules.subscriptions[TOPIC] = Subscription(TOPIC, "b", version=2)
        assert found(await pull) == (0, [1], 2)

    asyncio.run(scenario())


def test_a_pull_whose_heartbeat_does_not_come_is_told_so(room: PullRoom) -> None:
    room.rules.subscriptions[TOPIC] = Subscription(TOPIC, "a", version=1)
    answer = asyncio.run(room.pull(0, subVersion=2))
    assert answer.code == 25


def test_a_pull_of_a_client_that_has_gone_is_not_held(room: PullRoom) -> None:
    room.send("a")

    async def scenario() -> None:
        gone = Client()
        gone.close()
        assert room.ask(gone, 1, sysFlag=2, suspendTimeoutMillis=15_000) is None
        assert room.room.held.count == 0

    asyncio.run(scenario())


def test_a_pull_with_its_own_subscription_needs_no_heartbeat(room: PullRoom) -> None:
    room.send("a")
    room.rules.subscriptions.clear()
    assert room.pull_now(0, subVersion=7).code == 24
    assert found(room.pull_now(0, subVersion=7, **own("a"))) == (0, [0], 1)
