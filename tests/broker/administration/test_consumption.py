"""How far groups are, local ones and those of clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import Message, Producer, PullConsumer
from rmqclient.broker.address import Address
from rmqclient.remoting.bodies import (
    ConsumerData,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    GroupList,
    Heartbeat,
    Subscription,
)
from rmqclient.remoting.codes import RequestCode
from rmqclient.store import MessageQueue
from rmqclient.store.runtime.group_table import GroupQueueSlot, GroupTable
from rmqclient.store.settings.config_file import TopicConfig
from tests.broker.asking import Asking, asking


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Asking]:
    """A topic of two queues with three messages in each, of which group ``readers`` has finished two in the first."""
    with asking(tmp_path) as found:
        found.broker.topics.create("orders", TopicConfig(read_queue_count=2, write_queue_count=2))
        with Producer(tmp_path) as producer, PullConsumer(tmp_path, group="readers") as consumer:
            queues = consumer.queues("orders")
            while any(consumer.max_offset(queue) < 3 for queue in queues):
                producer.send(Message(topic="orders", body=b"x"))
            consumer.commit(queues[0], 2)
        yield found


def test_every_queue_that_consumers_see_is_told_with_the_time_of_the_last_finished_message(client: Asking) -> None:
    stats = ConsumeStats.decode(client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="readers").body)
    first, second = (stats.queues[MessageQueue("orders", number, "broker-a")] for number in range(2))
    finished = client.broker.store.messages.at(MessageQueue("orders", 0), 1)
    assert (first.broker_offset, first.consumer_offset) == (3, 2)
    assert first.last_timestamp == finished.store_timestamp
    assert (second.broker_offset, second.consumer_offset, second.last_timestamp) == (3, 0, 0)


def test_a_group_that_nobody_knows_has_an_empty_table(client: Asking) -> None:
    answer = client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="nope")
    assert (answer.code, ConsumeStats.decode(answer.body).queues) == (0, {})


def test_a_topic_that_members_no_longer_consume_is_left_out(client: Asking) -> None:
    _join(client, "readers", "payments")
    stats = ConsumeStats.decode(client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="readers").body)
    assert stats.queues == {}


def test_all_groups_are_told_with_what_they_are_behind(client: Asking) -> None:
    answer = client.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False)
    told = ConsumeStatsList.decode(answer.body)
    assert [list(entry) for entry in told.stats] == [["readers"]]
    assert (told.broker_address, told.total_diff) == ("127.0.0.1:9876", 4)
    ordered = ConsumeStatsList.decode(client.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=True).body)
    assert ordered.stats == ({"readers": ()},)


def test_the_offsets_of_many_groups_are_looked_at_once(client: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    store = client.broker.store
    with PullConsumer(store.root, group="others") as consumer:
        consumer.commit(consumer.queues("orders")[0], 1)
    looks: list[GroupTable] = []
    over = GroupTable.__iter__

    def counted(table: GroupTable) -> Iterator[GroupQueueSlot]:
        looks.append(table)
        return over(table)

    monkeypatch.setattr(GroupTable, "__iter__", counted)
    told = ConsumeStatsList.decode(client.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False).body)
    assert [list(entry) for entry in told.stats] == [["others"], ["readers"]]
    assert len(looks) == 1


def test_groups_of_a_topic_are_those_with_offsets_and_those_that_are_online(client: Asking) -> None:
    _join(client, "fresh", "orders")
    told = GroupList.decode(client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders").body)
    assert told.groups == ("fresh", "readers")
    assert GroupList.decode(client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="nope").body).groups == ()


def test_times_of_each_queue_are_told(client: Asking) -> None:
    answer = client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="orders", group="readers")
    spans = {span.queue.queue_id: span for span in ConsumeTimeSpans.decode(answer.body).spans}
    times = [client.broker.store.messages.at(MessageQueue("orders", 0), at).store_timestamp for at in range(3)]
    assert (spans[0].min_timestamp, spans[0].consume_timestamp, spans[0].max_timestamp) == tuple(times)
    assert spans[0].delay_ms >= 0
    assert client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="nope", group="readers").code == 17


def _join(client: Asking, group: str, topic: str) -> None:
    data = ConsumerData(group, subscriptions=(Subscription(topic, "*", 1),))
    client.beat(Heartbeat("java@1", consumers=(data,)), Address("10.0.0.1", 1))
