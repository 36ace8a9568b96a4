"""Topics as clients see them: made, changed, made by themselves, deleted, and kept in RocketMQ's form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from rmqclient import App, Message, MessageQueue, Producer, PullConsumer, ReceivedMessage
from rmqclient.broker.address import Address
from rmqclient.broker.settings import ServeSettings
from rmqclient.broker.topics.topics import Topics
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.store import MessageStore, open_store
from rmqclient.store.errors import MessageRejected
from rmqclient.store.settings.config_file import TopicConfig
from tests.client.conftest import consuming, wait_for

CLIENT = Address("10.0.0.9", 40_000)
FOUR = TopicConfig(read_queue_count=4, write_queue_count=4)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def topics(store: MessageStore) -> Topics:
    return Topics(store, ServeSettings(store.root))


def test_a_topic_that_a_client_makes_is_a_topic_of_local_producers(topics: Topics, store: MessageStore) -> None:
    topics.create("orders", FOUR)
    with Producer(store.root) as producer:
        sent = producer.send(Message(topic="orders", body=b"1"))
    assert (len(topics.queues("orders")), sent.queue.queue_id in range(4)) == (4, True)


def test_a_topic_that_another_process_makes_is_seen_at_once(topics: Topics, tmp_path: Path) -> None:
    assert topics.config("later") is None
    with Producer(tmp_path) as producer:
        producer.send(Message(topic="later", body=b"1"))
    config = topics.config("later")
    assert config is not None
    assert len(topics.queues("later")) == config.read_queue_count


def test_a_topic_stands_in_the_file_as_a_broker_writes_it(topics: Topics, tmp_path: Path) -> None:
    topics.create(
        "orders",
        TopicConfig(read_queue_count=8, write_queue_count=4, perm=4, topic_filter_type="MULTI_TAG", topic_sys_flag=1),
    )
    document = orjson.loads((tmp_path / "config" / "topics.json").read_bytes())
    assert document["topicConfigTable"]["orders"] == {
        "order": False,
        "perm": 4,
        "readQueueNums": 8,
        "topicFilterType": "MULTI_TAG",
        "topicName": "orders",
        "topicSysFlag": 1,
        "writeQueueNums": 4,
    }


def test_a_topic_gets_more_queues_and_keeps_them(topics: Topics) -> None:
    topics.create("orders", FOUR)
    topics.create("orders", TopicConfig(read_queue_count=6, write_queue_count=5))
    assert [queue.queue_id for queue in topics.queues("orders")] == list(range(6))
    topics.create("orders", TopicConfig(read_queue_count=2, write_queue_count=2))
    config = topics.config("orders")
    assert (config and config.read_queue_count, len(topics.queues("orders"))) == (2, 6)


@pytest.mark.parametrize(("wished", "made"), [(4, 4), (16, 8), (1, 1)])
def test_the_first_message_makes_a_topic_with_the_queues_that_its_client_wishes(
    topics: Topics, wished: int, made: int
) -> None:
    config = topics.auto_create("fresh", "TBW102", wished, CLIENT)
    assert config == TopicConfig(read_queue_count=made, write_queue_count=made, perm=6)
    assert topics.config("fresh") == config


def test_no_topic_is_made_by_itself_when_that_is_off(store: MessageStore) -> None:
    topics = Topics(store, ServeSettings(store.root, auto_create_topics=False))
    assert topics.config("TBW102") is None
    assert topics.auto_create("fresh", "TBW102", 4, CLIENT) is None
    assert topics.config("fresh") is None


def test_a_topic_is_not_made_after_one_that_does_not_hand_on_its_settings(topics: Topics) -> None:
    topics.create("orders", FOUR)
    assert topics.auto_create("fresh", "orders", 4, CLIENT) is None
    assert topics.auto_create("fresh", "unknown", 4, CLIENT) is None


def test_a_deleted_topic_is_unknown_and_its_messages_are_gone(topics: Topics, store: MessageStore) -> None:
    topics.create("orders", FOUR)
    with Producer(store.root) as producer:
        producer.send(Message(topic="orders", body=b"old"))
    assert topics.delete("orders")
    assert (topics.config("orders"), topics.queues("orders")) == (None, [])
    topics.create("orders", FOUR)
    with Producer(store.root) as producer, PullConsumer(store.root, group="readers") as consumer:
        producer.send(Message(topic="orders", body=b"new"))
        queues = consumer.queues("orders")
        pulled = [consumer.pull(queue, consumer.min_offset(queue)) for queue in queues]
        bodies = [message.body for result in pulled for message in result.messages]
    assert bodies == [b"new"]


def test_a_topic_that_was_deleted_stays_unknown_after_a_restart(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        Topics(store, ServeSettings(tmp_path)).create("orders", FOUR)
        Topics(store, ServeSettings(tmp_path)).delete("orders")
    with open_store(tmp_path) as store:
        assert Topics(store, ServeSettings(tmp_path)).config("orders") is None


def test_the_topic_of_retries_is_made_once(topics: Topics) -> None:
    assert topics.create_retry("workers").read_queue_count == 1
    assert topics.create_retry("workers", 4).read_queue_count == 1
    assert [queue.topic for queue in topics.queues("%RETRY%workers")] == ["%RETRY%workers"]


@pytest.mark.parametrize("topic", ["OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"])
def test_no_local_producer_sends_to_a_topic_that_brokers_keep_for_themselves(store: MessageStore, topic: str) -> None:
    with Producer(store) as producer, pytest.raises(MessageRejected, match=topic):
        producer.send(Message(topic, b""))


def test_system_topics_are_there_without_queues_until_somebody_needs_them(topics: Topics, store: MessageStore) -> None:
    known = topics.configs()
    assert {"TBW102", "BenchmarkTest", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a"} <= known.keys()
    assert store.topics.topics() == []
    assert len(topics.open("broker-a")) == 1
    assert store.topics.topics() == ["broker-a"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "blank"),
        ("../etc", "illegal characters"),
        ("a/b", "illegal characters"),
        ("a\n", "illegal characters"),
        ("größe", "illegal characters"),
        ("x" * 128, "longer than topic max length"),
    ],
)
def test_a_name_that_no_topic_can_have_is_refused(topics: Topics, name: str, text: str) -> None:
    with pytest.raises(AnswerError, match=text):
        topics.create(name, FOUR)


@pytest.mark.parametrize("count", [0, -1, 1025, 1 << 31])
def test_a_number_of_queues_out_of_bounds_is_refused(topics: Topics, count: int) -> None:
    with pytest.raises(AnswerError) as raised:
        topics.create("orders", TopicConfig(read_queue_count=count, write_queue_count=4))
    assert raised.value.code == ResponseCode.SYSTEM_ERROR
    assert topics.config("orders") is None


def test_a_server_for_reading_only_makes_no_topic(store: MessageStore) -> None:
    topics = Topics(store, ServeSettings(store.root, read_only=True))
    with pytest.raises(AnswerError) as raised:
        topics.create("orders", FOUR)
    assert raised.value.code == ResponseCode.NO_PERMISSION
    assert topics.config("orders") is None


def test_a_local_group_has_its_retry_topic_for_tools_before_it_has_failed(topics: Topics, store: MessageStore) -> None:
    store.topics.create("orders", 1)
    assert topics.config("%RETRY%billing") is None
    app = App(store.root)

    @app.handler("orders", group="billing")
    def handle(message: ReceivedMessage) -> None: ...

    store.members().join("prices|host-1", "orders", "host-1", "tags *")  # of a broadcast group
    with consuming(store, app):
        for name in ("%RETRY%billing", "%RETRY%prices"):
            assert topics.config(name) == TopicConfig(read_queue_count=1, write_queue_count=1)
            assert name in topics.listed()
        assert "%RETRY%billing" not in topics.configs()  # which a replica takes over
        assert topics.config("%RETRY%CID_RMQ_SYS_TRANS") is None
    with PullConsumer(store, group="reports") as consumer:
        consumer.commit(MessageQueue("orders", 0), 0)
    wait_for(lambda: topics.config("%RETRY%reports") is not None, "a group with an offset is known")
    assert topics.made().keys() == {"orders"}
    assert topics.queues("%RETRY%billing") == []


def test_the_retry_topic_of_a_group_is_made_by_its_first_message_and_by_its_first_heartbeat(
    topics: Topics, store: MessageStore
) -> None:
    store.topics.create("orders", 1)
    with PullConsumer(store, group="billing") as consumer:
        consumer.commit(MessageQueue("orders", 0), 0)
    wait_for(lambda: topics.config("%RETRY%billing") is not None, "the group is known")
    assert len(topics.open("%RETRY%billing")) == 1
    with PullConsumer(store, group="reports") as consumer:
        consumer.commit(MessageQueue("orders", 0), 0)
    wait_for(lambda: topics.config("%RETRY%reports") is not None, "the group is known")
    assert topics.create_retry("reports", 3).read_queue_count == 3
    assert topics.made()["%RETRY%reports"].read_queue_count == 3
