"""Members: what heartbeats of all kinds of clients make of a group, and what the others are told."""

from __future__ import annotations

import json

import pytest

from rmqclient.broker.clients import clients as clients_of
from rmqclient.broker.clients.clients import SILENCE_S
from rmqclient.broker.groups import room
from rmqclient.broker.limits.counters import Refusal
from rmqclient.remoting.bodies import Heartbeat, ProducerData, Subscription
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from tests.broker.groups.house import GROUP, TOPIC, Client, House, stand_still


def test_members_are_listed_as_java_sorts_them_once_each(house: House) -> None:
    second = house.member("10.0.0.2@7#1")
    house.member("10.0.0.10@7#1")
    assert second.members() == ("10.0.0.10@7#1", "10.0.0.2@7#1")


def test_a_group_without_members_has_no_list(house: House) -> None:
    answer = house.client("nobody").ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="empty")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, empty")


def test_the_answer_to_a_heartbeat_says_which_version_the_broker_is(house: House) -> None:
    assert house.client("one").beat().version == 407


def test_the_first_heartbeat_of_a_group_makes_its_retry_topic(house: House) -> None:
    house.member("one")
    config = house.broker.topics.config(f"%RETRY%{GROUP}")
    assert config is not None
    assert (config.read_queue_count, config.perm) == (1, 6)


def test_a_first_heartbeat_that_cannot_be_taken_in_is_answered(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(house.groups.clients, "beat", fail)
        answer = house.client("one").beat()
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "RuntimeError planted")
    assert "planted" in caplog.text
    assert house.member("one").members() == ("one",)


def test_everybody_is_told_of_a_new_member_and_of_one_that_leaves(house: House) -> None:
    first = house.member("one")
    assert first.notices == 1
    second = house.member("two")
    assert (first.notices, second.notices) == (2, 1)
    second.leave()
    assert (first.notices, first.members()) == (3, ("one",))


def test_a_second_heartbeat_that_says_the_same_tells_nobody(house: House) -> None:
    first = house.member("one")
    second = house.member("two")
    second.beat()
    second.beat(Subscription(TOPIC, version=9))
    assert first.notices == 2


@pytest.mark.guarantee("G49")
def test_a_heartbeat_that_is_too_long_is_refused_and_nothing_of_it_is_kept(house: House) -> None:
    topics = [Subscription(f"{number:03}", "x" * 8_000) for number in range(200)]
    client = house.client("one")
    answer = client.beat(*topics)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "1,048,576" in (answer.remark or "")
    assert client.members() == ()
    assert house.broker.counters.count(Refusal.HEARTBEAT) == 1


@pytest.mark.guarantee("G49")
def test_heartbeats_are_refused_while_those_of_all_clients_take_too_much(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_of, "MOST_KEPT_BYTES", 20_000)
    first = house.member("one", *[Subscription(f"{number:03}") for number in range(20)])
    second = house.client("two")
    subscriptions = [Subscription(f"{number:03}") for number in range(10)]
    # Given a client that takes nearly all, then another one is refused, and has become no member
    assert second.beat(*subscriptions).code == ResponseCode.SYSTEM_BUSY
    assert first.members() == ("one",)
    assert house.broker.counters.count(Refusal.HEARTBEAT) == 1
    # And the first one can still change what it wants, and leave
    assert first.beat(Subscription("000")).code == 0
    assert second.beat(*subscriptions).code == 0
    first.close()
    assert second.members() == ("two",)


@pytest.mark.guarantee("G49")
def test_the_groups_of_earlier_heartbeats_count_until_they_are_silent_or_left(house: House) -> None:
    client = house.client("one")
    # Given a connection that is in as many groups as it may, by two heartbeats
    assert [produce(client, range(128)).code, produce(client, range(128, 256)).code] == [0, 0]
    # Then a third one with another group is refused, and one with a group that is known is not
    refused = produce(client, range(255, 257))
    assert (refused.code, house.broker.counters.count(Refusal.HEARTBEAT)) == (ResponseCode.SYSTEM_ERROR, 1)
    assert "257 groups" in (refused.remark or "")
    assert produce(client, range(2)).code == 0
    # When it leaves one, then there is room for one
    client.ask(RequestCode.UNREGISTER_CLIENT, clientID="one", producerGroup="makers-7", consumerGroup="")
    assert produce(client, range(256, 257)).code == 0
    assert produce(client, range(257, 258)).code == ResponseCode.SYSTEM_ERROR
    # And when the others are silent, there is room for as many
    clients = house.groups.clients
    for group in clients.producers.groups():
        clients.producers.of(group)[0].beat_at -= SILENCE_S + 1
    clients.end_silent()
    assert produce(client, range(300, 556)).code == 0


def produce(client: Client, numbers: range) -> Frame:
    """Send a heartbeat that names some groups of producers."""
    producers = tuple(ProducerData(f"makers-{number}") for number in numbers)
    return client.ask(RequestCode.HEART_BEAT, Heartbeat(client.client_id, producers).encode())


@pytest.mark.guarantee("G49")
def test_what_the_groups_of_earlier_heartbeats_take_counts_until_they_are_left(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_of, "MOST_KEPT_BYTES", 20_000)
    subscriptions = [Subscription(f"{number:03}") for number in range(15)]
    client = house.client("one")
    assert client.beat(*subscriptions, group="first").code == 0
    assert client.beat(*subscriptions, group="second").code == ResponseCode.SYSTEM_BUSY
    assert client.beat(*subscriptions, group="first").code == 0
    client.leave("first")
    assert client.beat(*subscriptions, group="second").code == 0


def test_of_what_members_tell_the_newest_version_counts(house: House) -> None:
    first, second = house.member("one"), house.member("two")
    first.beat(Subscription(TOPIC, version=9))
    second.beat(Subscription(TOPIC, version=7))
    assert house.broker.groups.clients.subscription(GROUP, TOPIC) == Subscription(TOPIC, version=9)


def test_a_member_that_left_is_back_with_its_next_heartbeat(house: House) -> None:
    first, second = house.member("one"), house.member("two")
    second.beat()
    second.leave()
    assert first.members() == ("one",)
    second.beat()
    assert (first.members(), first.notices) == (("one", "two"), 4)


def test_a_client_that_is_silent_for_two_minutes_is_out(house: House) -> None:
    first, second = house.member("one"), house.member("two")
    for member in house.groups.clients.consumers.of(GROUP):
        member.beat_at -= SILENCE_S + 1
    first.beat()
    house.groups.clients.end_silent()
    assert second.members() == ("one",)
    second.beat()
    assert second.members() == ("one", "two")


def test_a_server_that_stood_still_removes_none_of_its_clients_for_that(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a client that is silent, and one that is not, when the server has stood still for longer than they may be
    first, second = house.member("one"), house.member("two")
    house.groups.clients.consumers.of(GROUP)[1].beat_at -= SILENCE_S
    stand_still(SILENCE_S + 1, monkeypatch)

    # When it looks, then the first one is in: what it has sent meanwhile is not read yet
    house.groups._looked_for_silence_at -= room._SILENCE_EVERY_S
    house.look()
    assert first.members() == ("one",)
    second.beat()
    assert second.members() == ("one", "two")


def test_a_heartbeat_that_is_repeated_keeps_no_group_that_it_does_not_name(house: House) -> None:
    client = house.member("one")
    clients = house.groups.clients
    produce(client, range(1))
    clients.consumers.of(GROUP)[0].beat_at -= SILENCE_S + 1
    produce(client, range(1))
    clients.end_silent()
    assert (clients.consumers.groups(), clients.producers.groups()) == ([], ["makers-0"])


def test_a_member_that_takes_another_topic_is_told_of(house: House) -> None:
    first = house.member("one")
    first.beat(TOPIC, "parcels")
    assert first.notices == 2


def test_a_connection_that_ends_ends_the_membership(house: House) -> None:
    first, second = house.member("one"), house.member("two")
    second.close()
    assert (first.members(), first.notices) == (("one",), 3)


def test_a_cpp_client_sends_numbers_and_an_empty_group(house: House) -> None:
    client = house.client("7-10.0.0.3@DEFAULT")
    body = {
        "clientID": client.client_id,
        "consumerDataSet": [
            {
                "groupName": GROUP,
                "consumeFromWhere": 4,
                "consumeType": 1,
                "messageModel": 1,
                "subscriptionDataSet": [{"subString": "a || b", "subVersion": "1700000000000", "topic": TOPIC}],
            },
            {"groupName": ""},
        ],
        "producerDataSet": [{"groupName": ""}],
    }
    assert client.ask(RequestCode.HEART_BEAT, json.dumps(body).encode() + b"\n").code == 0
    wanted = house.groups.clients.subscription(GROUP, TOPIC)
    assert wanted is not None
    assert (wanted.tags, wanted.codes, wanted.version) == (("a", "b"), (97, 98), 1_700_000_000_000)
    assert house.groups.clients.consumers.groups() == [GROUP]
    assert house.groups.clients.producers.groups() == []
    client.ask(RequestCode.UNREGISTER_CLIENT, clientID=client.client_id, producerGroup="", consumerGroup="")
    assert house.groups.clients.consumers.groups() == [GROUP]


def test_a_producer_is_found_by_its_group_and_by_its_client(house: House) -> None:
    client = house.client("sender")
    body = {"clientID": "sender", "producerDataSet": [{"groupName": "P"}, {"groupName": "CLIENT_INNER_PRODUCER"}]}
    client.ask(RequestCode.HEART_BEAT, json.dumps(body).encode())
    clients = house.groups.clients
    assert (clients.producers.open_peers("P"), clients.producers.newest_peer("sender")) == ([client], client)
    client.close()
    assert (clients.producers.open_peers("P"), clients.producers.newest_peer("sender")) == ([], None)
    assert clients.producers.groups() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"clientID": "x" * 1_025}, "1025 bytes"),
        ({"clientID": ""}, "0 bytes"),
        ({"consumerDataSet": [{"groupName": "../up"}]}, "illegal"),
        ({"consumerDataSet": [{"groupName": "CID_RMQ_SYS_TRANS"}]}, "has no members"),
        ({"consumerDataSet": [{"groupName": f"g{number}"} for number in range(257)]}, "257 groups"),
        (
            {"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "a/b"}]}]},
            "topic name 'a/b' is illegal",
        ),
        (
            {
                "consumerDataSet": [
                    {"groupName": "g", "subscriptionDataSet": [{"topic": "t", "subString": "x" * 40_000}]}
                ]
            },
            "40,000 characters",
        ),
    ],
)
def test_a_heartbeat_beyond_the_limits_is_refused_and_makes_nothing(
    house: House, change: dict[str, object], said: str
) -> None:
    client = house.client("one")
    answer = client.ask(RequestCode.HEART_BEAT, json.dumps({"clientID": "one", **change}).encode())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert said in (answer.remark or "")
    assert house.groups.clients.consumers.groups() == []


def test_two_connections_with_one_client_id_are_one_id_and_the_first_is_fed(house: House) -> None:
    house.fill(4)
    first, second = house.member("same"), house.member("same")
    assert first.members() == ("same",)
    assert (first.may_pull(0), second.may_pull(0)) == (True, False)
    first.close()
    assert second.members() == ("same",)
    house.until(lambda: second.may_pull(0), "the connection that is left has the queue")


@pytest.mark.parametrize(
    ("kind", "expression", "code"),
    [
        ("TAG", "anything", ResponseCode.SUCCESS),
        ("SQL92", "n > 5 AND region = 'eu'", ResponseCode.SUCCESS),
        ("SQL92", "n > > 5", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("GRAPHQL", "{n}", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
def test_a_filter_is_checked_before_a_consumer_starts(
    house: House, kind: str, expression: str, code: ResponseCode
) -> None:
    body = {
        "clientId": "one",
        "group": GROUP,
        "subscriptionData": {"topic": TOPIC, "expressionType": kind, "subString": expression},
    }
    assert house.client("one").ask(RequestCode.CHECK_CLIENT_CONFIG, json.dumps(body).encode()).code == code


def test_a_group_has_the_subscription_with_the_highest_version_of_any_member(house: House) -> None:
    first, second = house.member("one"), house.member("two")
    first.beat(Subscription(TOPIC, version=9))
    second.beat(Subscription(TOPIC, version=7))
    wanted = house.groups.clients.subscription(GROUP, TOPIC)
    assert wanted is not None
    assert wanted.version == 9
    second.beat(Subscription(TOPIC, version=12))
    wanted = house.groups.clients.subscription(GROUP, TOPIC)
    assert wanted is not None
    assert wanted.version == 12
