"""Topics that clients wait for: a consumer of one begins at its first message, and no client can name too many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.broker.clients.awaited import MOST_OF_ONE, REMEMBERED_S, Awaited
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.limits.limits import Limits
from rmqclient.remoting.bodies import ConsumeFrom
from rmqclient.remoting.codes import RequestCode
from tests.broker.groups.house import Client, House, house_of


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with house_of(tmp_path / "store", limits=Limits(awaited_topics=3)) as opened:
        yield opened


def ask_for(client: Client, *topics: str) -> None:
    """Ask for the routes of topics that are not there."""
    for topic in topics:
        assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic).code == 17


def hears_all(client: Client, topic: str) -> bool:
    """Make a topic with a message; tell whether the client begins there, and not behind it."""
    client.house.store.topics.create(topic, 1)
    with Producer(client.house.root) as producer:
        producer.send(Message(topic, b"first"))
    group = f"{topic}-of-{client.client_id}"
    client.beat(topic, group=group, consume_from=ConsumeFrom.CONSUME_FROM_LAST_OFFSET)
    found = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=0)
    return int(found.fields["offset"]) == 0


@pytest.mark.guarantee("G49")
def test_what_all_connections_wait_for_is_bounded_and_one_more_topic_is_not_remembered(house: House) -> None:
    # Given as many topics as all clients may wait for, by two clients
    one, two = house.client("one"), house.client("two")
    ask_for(one, "a", "b")
    ask_for(two, "a", "b")
    # Then the last one is answered as ever, and not remembered
    assert house.broker.counters.count(Refusal.AWAITED) == 1
    assert [hears_all(one, "a"), hears_all(one, "b"), hears_all(two, "a"), hears_all(two, "b")] == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.guarantee("G49")
def test_who_asks_again_for_a_topic_that_is_remembered_needs_no_more_room(house: House) -> None:
    one = house.client("one")
    for _ in range(3):
        ask_for(one, "a", "b", "c")
    assert house.broker.counters.count(Refusal.AWAITED) == 0
    assert hears_all(one, "c")


@pytest.mark.guarantee("G49")
def test_a_connection_that_ends_makes_room_for_what_others_wait_for(house: House) -> None:
    one, two = house.client("one"), house.client("two")
    ask_for(one, "a", "b", "c")
    one.close()
    ask_for(two, "a", "b", "c")
    assert house.broker.counters.count(Refusal.AWAITED) == 0
    assert hears_all(two, "c")


class Hours:
    """A clock that a test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.guarantee("G49")
def test_names_that_nobody_has_asked_for_again_make_room(house: House) -> None:
    clock, counters = Hours(), Counters()
    awaited = Awaited(3, counters, clock)
    one, two, three = house.client("one"), house.client("two"), house.client("three")
    # Given three names of three connections, of which one goes on to ask
    for client in (one, two, three):
        awaited.note(client, "a")
    clock.now += REMEMBERED_S - 1
    awaited.note(two, "a")
    awaited.note(two, "b")
    assert counters.count(Refusal.AWAITED) == 1
    # When the others are silent for too long, then there is room for two names
    clock.now += 2
    for topic in ("b", "c", "d"):
        awaited.note(one, topic)
    assert counters.count(Refusal.AWAITED) == 2
    assert [awaited.awaits(one, topic) for topic in "abcd"] == [False, True, True, False]
    assert [awaited.awaits(each, "a") for each in (two, three)] == [True, False]
    assert awaited.count == 3
    # And nothing is left of connections that have ended
    for client in (one, two, three):
        client.close()
    assert awaited.count == 0


@pytest.mark.guarantee("G49")
def test_a_connection_has_its_own_limit_and_what_it_asks_for_no_more_does_not_count(house: House) -> None:
    clock, counters = Hours(), Counters()
    awaited, client = Awaited(10 * MOST_OF_ONE, counters, clock), house.client("one")
    for number in range(MOST_OF_ONE + 1):
        awaited.note(client, f"topic-{number}")
    assert (awaited.count, counters.count(Refusal.AWAITED)) == (MOST_OF_ONE, 1)
    clock.now += REMEMBERED_S + 1
    awaited.note(client, "another")
    assert (awaited.count, counters.count(Refusal.AWAITED)) == (1, 1)


def test_a_connection_is_watched_once_however_often_it_is_forgotten(house: House) -> None:
    clock = Hours()
    awaited, client, other = Awaited(1, Counters(), clock), house.client("one"), house.client("two")
    for _ in range(10):
        awaited.note(client, "a")
        clock.now += REMEMBERED_S + 1
        awaited.note(other, "a")
        clock.now += REMEMBERED_S + 1
    assert len(client._closed) == 1
