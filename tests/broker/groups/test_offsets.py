"""Offsets: where a new group begins, and how far groups are, as clients and slaves ask for it."""

from __future__ import annotations

import pytest

from rmqclient import Message, Producer
from rmqclient.remoting.bodies import ConsumeFrom, DelayOffsets, MessageModel, OffsetTable, Subscription
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.store import MessageQueue
from tests.broker.groups.house import GROUP, TOPIC, Client, House


def test_a_group_of_the_first_offset_begins_at_the_oldest_message(house: House) -> None:
    house.fill(8)
    assert house.member("one").offset(0) == 0


def test_a_group_of_the_last_offset_begins_where_the_queue_ended_when_its_first_member_came(house: House) -> None:
    house.fill(8)
    first = house.member("one", consume_from=ConsumeFrom.CONSUME_FROM_LAST_OFFSET)
    house.fill(8)  # sent after the consumer has started: these belong to the group
    assert [first.offset(queue_id) for queue_id in range(4)] == [2, 2, 2, 2]
    second = house.member("two", consume_from=ConsumeFrom.CONSUME_FROM_LAST_OFFSET)
    assert second.offset(3) == 2


def test_a_group_of_the_last_offset_begins_at_the_first_message_of_a_queue_that_came_later(house: House) -> None:
    first = house.member("one", consume_from=ConsumeFrom.CONSUME_FROM_LAST_OFFSET)
    house.store.topics.add([MessageQueue(TOPIC, 4)])
    assert first.offset(4) == 0


def test_a_consumer_that_waited_for_a_topic_begins_at_its_first_message(house: House) -> None:
    waiting, late = house.client("one"), house.client("two")
    assert waiting.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="new").code == ResponseCode.TOPIC_NOT_EXIST
    with Producer(house.root) as producer:
        producer.send(Message("new", b"the first"))
    for member, group in ((waiting, "waiting"), (late, "late")):
        member.beat("new", group=group, consume_from=ConsumeFrom.CONSUME_FROM_LAST_OFFSET)
    queues = [queue.queue_id for queue in house.store.topics.queues("new")]
    assert sum(begin(waiting, "waiting", "new", queue_id) for queue_id in queues) == 0
    assert sum(begin(late, "late", "new", queue_id) for queue_id in queues) == 1


def test_a_broadcast_consumer_begins_where_the_queue_ended_when_it_came(house: House) -> None:
    house.fill(8)
    one = house.client("one")
    one.beat_as_broadcast()
    house.fill(8)  # sent after the consumer has started
    two = house.client("two")
    two.beat_as_broadcast()
    house.fill(8)
    assert [end(one, queue_id) for queue_id in range(4)] == [2, 2, 2, 2]
    assert [end(two, queue_id) for queue_id in range(4)] == [4, 4, 4, 4]
    assert end(house.client("mqadmin"), 0) == 6


def test_a_broadcast_consumer_that_has_pulled_is_told_where_the_queue_ends_now(house: House) -> None:
    one = house.client("one")
    one.beat_as_broadcast()
    house.fill(8)
    assert one.may_pull(0)
    one.beat(Subscription(TOPIC, "paid"), retries=False, message_model=MessageModel.BROADCASTING)
    assert [end(one, queue_id) for queue_id in range(4)] == [2, 0, 0, 0]


def test_a_group_of_a_time_asks_for_the_time_itself(house: House) -> None:
    answer = house.member("one", consume_from=ConsumeFrom.CONSUME_FROM_TIMESTAMP).ask(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, topic=TOPIC, queueId=0
    )
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("begin", list(ConsumeFrom))
def test_a_retry_topic_is_consumed_from_its_begin_whatever_was_asked(house: House, begin: ConsumeFrom) -> None:
    member = house.member("one", consume_from=begin)
    assert member.offset(0, f"%RETRY%{GROUP}") == 0


def test_who_asks_only_makes_no_offset(house: House) -> None:
    member = house.member("one")
    member.offset(0)
    house.client("mqadmin").offset(0)
    assert house.committed(0) is None


def test_a_group_begins_in_the_store_where_its_first_pull_is(house: House) -> None:
    house.fill(8)
    member = house.member("one", consume_from=ConsumeFrom.CONSUME_FROM_TIMESTAMP)
    assert member.may_pull(0, 1)
    assert (house.committed(0), member.offset(0)) == (1, 1)


def test_a_stranger_is_answered_as_by_a_broker_whose_queues_are_young(house: House) -> None:
    house.fill(8)
    stranger = house.client("mqadmin")
    assert (stranger.offset(0), stranger.offset(0, "unknown")) == (0, 0)


def test_a_stranger_that_asks_for_an_old_queue_finds_nothing(house: House) -> None:
    house.fill(8)
    house.store.topics.raise_min_offset(MessageQueue(TOPIC, 0), 1)
    assert house.client("mqadmin").offset(0) is None
    zero = house.client("mqadmin").ask(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, topic=TOPIC, queueId=0, setZeroIfNotFound=True
    )
    assert zero.fields["offset"] == "0"


def test_a_queue_that_does_not_exist_cannot_be_committed(house: House) -> None:
    assert house.client("mqadmin").commit(0, 0, "unknown") == ResponseCode.TOPIC_NOT_EXIST


def test_a_slave_reads_the_offsets_of_all_groups(house: House) -> None:
    house.fill(8)
    house.client("mqadmin").commit(2, 1)
    answer = house.client("slave").ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert OffsetTable.decode(answer.body).of_group(GROUP) == {TOPIC: {2: 1}}


def test_a_slave_reads_how_far_the_delay_levels_are(house: House) -> None:
    with Producer(house.root) as producer:
        producer.send(Message(topic=TOPIC, body=b"late"), delay_level=1)
    answer = house.client("slave").ask(RequestCode.GET_ALL_DELAY_OFFSET)
    house.until(lambda: house.store.schedule.next_offset(1) == 1, "the message is delivered")
    answer = house.client("slave").ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert DelayOffsets.decode(answer.body).offsets[1] == 1


def end(client: Client, queue_id: int) -> int:
    """Return what a client is told as the end of a queue."""
    return int(client.ask(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=queue_id).fields["offset"])


def begin(client: Client, group: str, topic: str, queue_id: int) -> int:
    """Return where a group is told to begin."""
    answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=queue_id)
    return int(answer.fields["offset"])
