"""Names that a broker takes and the store has no room for: long groups, groups with a bar, long client ids."""

from __future__ import annotations

import pytest

from rmqclient.broker.stored_names import is_group, is_shortened, stored_client, stored_group
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.store.message_queue import is_name
from tests.broker.groups.house import TOPIC, Client, House

LONG = [121, 127, 128, 200, 255]
GROUPS = [*("g" * size for size in LONG), "billing|reports", "|", "a|" * 127]


def commit(client: Client, group: str, offset: int) -> int:
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    return client.ask(code, consumerGroup=group, topic=TOPIC, queueId=0, commitOffset=offset).code


def offset(client: Client, group: str) -> int:
    answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=TOPIC, queueId=0)
    return int(answer.fields["offset"])


@pytest.mark.guarantee("G116")
@pytest.mark.parametrize("group", GROUPS)
def test_a_group_with_any_name_that_a_broker_takes_gets_queues_and_keeps_its_offsets(house: House, group: str) -> None:
    house.fill(8)
    one, two = house.client("one"), house.client("two")
    assert [each.beat(group=group).code for each in (one, two)] == [0, 0]
    assert one.members(group) == ("one", "two")
    assert one.lock(0, 1, group=group) == {0, 1}
    assert two.lock(0, 2, 3, group=group) == {2, 3}
    assert commit(one, group, 2) == 0
    assert offset(two, group) == 2
    one.leave(group)
    assert two.members(group) == ("two",)
    house.until(lambda: two.lock(0, group=group) == {0}, "the other member has the queue")
    assert house.committed(0, stored_group(group)) == 2


def test_a_group_of_another_name_is_another_group(house: House) -> None:
    house.fill(4)
    first, second = "g" * 130 + "a", "g" * 130 + "b"
    one = house.client("one")
    assert [one.beat(group=group).code for group in (first, second)] == [0, 0]
    assert (commit(one, first, 1), offset(one, second)) == (0, 0)


def test_an_administrator_sees_the_whole_name(house: House) -> None:
    house.fill(4)
    group = "g" * 200
    one = house.client("one")
    one.beat(group=group)
    commit(one, group, 1)
    table = one.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body.decode()
    assert group in table
    assert stored_group(group) not in table
    stats = one.ask(RequestCode.GET_CONSUME_STATS, consumerGroup=group).body.decode()
    assert '"consumerOffset":1' in stats


@pytest.mark.parametrize("size", [128, 1_024])
def test_clients_with_long_ids_share_the_queues(house: House, size: int) -> None:
    house.fill(8)
    ids = ["c" * (size - 1) + letter for letter in "ab"]
    one, two = (house.member(client_id) for client_id in ids)
    assert one.members() == tuple(ids)
    assert (one.lock(0, 1), two.lock(2, 3)) == ({0, 1}, {2, 3})
    connected = one.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="billing").body.decode()
    assert connected.count("clientId") == 2


def test_names_beyond_every_limit_are_refused_in_the_answer(house: House) -> None:
    assert house.client("one").beat(group="g" * 256).code == ResponseCode.SYSTEM_ERROR
    assert house.client("c" * 1_025).beat().code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("name", GROUPS)
def test_a_stored_name_fits_and_differs_from_every_other(name: str) -> None:
    stored = stored_group(name)
    assert is_group(name)
    assert is_name(stored)
    assert "|" not in stored
    assert is_shortened(stored) == (stored != name)
    assert stored_group(stored) == stored
    assert len({stored_group(each) for each in GROUPS}) == len(GROUPS)
    client = "ä" * 100
    assert len(stored_client(client).encode()) <= 127
    assert stored_client(client).startswith("ä" * 40)
