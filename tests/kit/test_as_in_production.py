"""The behaviour of handlers under the kit is what it is under ``rmq run``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqclient import Decision, Message, TransactionProducer
from rmqclient.message import ReceivedMessage
from rmqclient.testing import Kit
from tests.kit.apps.behaving import app
from tests.kit.places import InKit, Place, under_run


@pytest.fixture(params=["kit", "rmq run"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "kit":
        with Kit(app) as kit:
            yield InKit(kit)
    else:
        with under_run(tmp_path / "store") as run:
            yield run


def attempts(found: list[Any]) -> list[tuple[str, int]]:
    return [(each["body"], each["attempt"]) for each in found]


def test_handlers_of_every_kind_do_the_same_at_both_places(place: Place) -> None:
    # Tags: a message that is not wanted is finished without a call
    place.send("plain", b"not for us", tags="other")
    place.send("plain", b"for us", tags="wanted")
    assert attempts(place.done("plain", 1)) == [("for us", 1)]

    # A delay: nothing before its time
    place.send("plain", b"later", tags="wanted", delay=600)
    place.advance(599)
    assert attempts(place.done("plain", 1)) == [("for us", 1)]
    place.advance(1)
    assert attempts(place.done("plain", 2)) == [("for us", 1), ("later", 1)]

    # Retries: one message succeeds in its third attempt, another one never
    place.send("flaky", b"late")
    place.send("flaky", b"never")
    place.send("waiting", b"x")
    assert sorted(attempts(place.done("flaky", 2))) == [("late", 1), ("never", 1)]
    assert attempts(place.done("waiting", 1)) == [("x", 1)]
    place.advance(10)
    assert max(attempts(place.done("flaky", 4))) == ("never", 2)
    assert attempts(place.done("waiting", 2)) == [("x", 1), ("x", 2)]
    place.advance(60)
    assert sorted(attempts(place.done("flaky", 6))) == [(body, n) for body in ("late", "never") for n in (1, 2, 3)]
    assert place.given_up("flaky", 1) == [(b"never", 3)]

    # Order: a failed message holds those behind it, of its queue or of its key
    for body in (b"first", b"second"):
        place.send("ordered", body, sharding_key="one queue")
    for body, key in ((b"a1", "a"), (b"a2", "a"), (b"b1", "b")):
        place.send("keyed", body, sharding_key=key)
    assert attempts(place.done("ordered", 1)) == [("first", 1)]
    assert sorted(attempts(place.done("keyed", 2))) == [("a1", 1), ("b1", 1)]
    place.advance(1)
    assert attempts(place.done("ordered", 2)) == [("first", 1), ("first", 2)]
    assert [each for each in attempts(place.done("keyed", 4)) if each[0] != "b1"] == [("a1", 1), ("a1", 2), ("a2", 1)]
    place.advance(1)
    assert attempts(place.done("ordered", 4))[2:] == [("first", 3), ("second", 1)]

    # A batch is full, or its time is over
    for body in (b"1", b"2", b"3", b"4"):
        place.send("many", body, sharding_key="one queue")
    assert [each["bodies"] for each in place.done("many", 1)] == [["1", "2", "3"]]
    place.advance(30)
    assert [each["bodies"] for each in place.done("many", 2)] == [["1", "2", "3"], ["4"]]

    # A request
    assert place.request("asked", b"ab") == b"abab"


def test_a_schedule_sends_once_for_each_planned_time_at_both_places(place: Place) -> None:
    place.advance(0)
    begun = place.ticks_at_the_start
    assert len(place.done("ticks", begun)) == begun
    place.advance(60)
    assert len(place.done("ticks", begun + 1)) == begun + 1
    place.advance(60)
    assert len(place.done("ticks", begun + 2)) == begun + 2


def test_an_undecided_transaction_is_asked_about_at_both_places(place: Place) -> None:
    asked = []

    def decide(half: ReceivedMessage) -> Decision:
        asked.append(half.body)
        return Decision.COMMIT if half.body == b"paid" else Decision.ROLLBACK

    with TransactionProducer(place.root, group="shop", check=decide) as producer:
        for body in (b"paid", b"not paid"):
            producer.transaction(Message("plain", body, tags="wanted")).leave()
        place.advance(3)
        assert asked == []
        place.advance(60)
        assert attempts(place.done("plain", 1)) == [("paid", 1)]
    assert sorted(asked) == [b"not paid", b"paid"]
