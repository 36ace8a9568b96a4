"""Bodies and records of real brokers: everything that they answer is read, and nothing in it is left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from rmqclient import Message
from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.message import MessageQueue
from rmqclient.remoting import bodies
from rmqclient.remoting.bodies import Body, fastjson
from rmqclient.remoting.table import RequestCode, request, response_fields
from rmqclient.store import ReceivedMessage
from rmqclient.store.wire import (
    decode_records,
    encode_batch,
    encode_properties,
    new_message_id,
    parse_offset_id,
    sent_results,
)
from tests.interop.cluster.clusters import Cluster

Name = Callable[[str], str]


@pytest.fixture
def client(cluster: Cluster) -> Iterator[ClusterClient]:
    client = ClusterClient(ClusterURL.parse(cluster.url))
    yield client
    client.close()


@pytest.fixture
def broker(cluster: Cluster, client: ClusterClient) -> str:
    """The address of broker-a."""
    answer = client.call(cluster.addresses[0], request(RequestCode.GET_BROKER_CLUSTER_INFO))
    return bodies.ClusterInfo.decode(answer.body).brokers["broker-a"].addresses[bodies.MASTER_ID]


@pytest.fixture
def topic(client: ClusterClient, broker: str, name: Name) -> str:
    """A topic with one queue, at broker-a only."""
    made, queues = name("Bodies"), {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
    fields = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": False, **queues}
    client.call(broker, request(RequestCode.UPDATE_AND_CREATE_TOPIC, b"", topic=made, **fields))
    return made


def send(client: ClusterClient, broker: str, topic: str, body: bytes, properties: str, *, is_batch: bool) -> list[str]:
    """Send what was encoded; return the offset message ids."""
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    places = {"topic": topic, "queueId": 0, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4}
    numbers = {"sysFlag": 0, "flag": 0, "reconsumeTimes": 0, "bornTimestamp": time.time_ns() // 1_000_000}
    given = {"producerGroup": "bodies", "properties": properties, "batch": is_batch, **places, **numbers}
    found: str = response_fields(code, client.call(broker, request(code, body, **given)))["msgId"]
    return found.split(",")


def read_first(count: int, client: ClusterClient, broker: str, queue: MessageQueue) -> list[ReceivedMessage]:
    """Return the first messages of a queue as soon as the broker gives them: it holds a pull that finds nothing."""
    found: list[ReceivedMessage] = []
    held = {"suspendTimeoutMillis": 15_000, "sysFlag": 6, "subscription": "*", "subVersion": 0, "commitOffset": 0}
    place = {"consumerGroup": "bodies_g", "topic": queue.topic, "queueId": queue.queue_id, "maxMsgNums": count}
    while len(found) < count:
        pull = request(RequestCode.PULL_MESSAGE, b"", queueOffset=len(found), **held, **place)
        found += decode_records(client.call(broker, pull, 30.0).body, queue)
    return found


def test_what_was_encoded_is_read_again_from_a_broker(client: ClusterClient, broker: str, topic: str) -> None:
    queue = MessageQueue(topic, 0, "broker-a")
    first = Message(topic, b"one", tags="a", keys=["k"], properties={"colour": "ü"})
    ids = [new_message_id() for _ in range(3)]
    batch = encode_batch([first, Message(topic, b"2" * 999, flag=7)], [{"UNIQ_KEY": each} for each in ids[:2]])
    places = send(client, broker, topic, batch, "WAIT\x01true", is_batch=True)
    alone = encode_properties(Message(topic, b"three", tags="b"), {"UNIQ_KEY": ids[2]})
    places += send(client, broker, topic, b"three", alone, is_batch=False)
    read = read_first(3, client, broker, queue)
    assert [(each.queue_offset, each.body, each.tags, each.flag) for each in read] == [
        (0, b"one", "a", 0),
        (1, b"2" * 999, None, 7),
        (2, b"three", "b", 0),
    ]
    assert (read[0].keys, read[0].properties["colour"]) == (("k",), "ü")
    assert [each.message_id for each in read] == ids
    assert [each.offset_message_id for each in read] == places
    assert sent_results(queue, 2, ids[2:3], places[2:3])[0].commit_log_offset == read[2].commit_log_offset
    assert parse_offset_id(places[2]).address == broker
    by_id = request(RequestCode.VIEW_MESSAGE_BY_ID, offset=read[1].commit_log_offset, topic=topic)
    (seen,) = decode_records(client.call(broker, by_id).body, broker_name="broker-a")
    assert (seen.record(), seen.queue) == (read[1].record(), queue)


ANSWERS: list[tuple[RequestCode, type[Body], dict[str, object]]] = [
    (RequestCode.GET_TOPIC_STATS_INFO, bodies.TopicStats, {}),
    (RequestCode.GET_ALL_TOPIC_CONFIG, bodies.TopicTable, {}),
    (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, bodies.GroupTable, {}),
    (RequestCode.GET_ALL_CONSUMER_OFFSET, bodies.OffsetTable, {}),
    (RequestCode.GET_ALL_DELAY_OFFSET, bodies.DelayOffsets, {}),
    (RequestCode.GET_BROKER_RUNTIME_INFO, bodies.KVTable, {}),
    (RequestCode.GET_BROKER_CONSUME_STATS, bodies.ConsumeStatsList, {"isOrder": False}),
    (RequestCode.GET_ALL_PRODUCER_INFO, bodies.ProducerTable, {}),
    (RequestCode.QUERY_CONSUME_TIME_SPAN, bodies.ConsumeTimeSpans, {"group": "bodies_g"}),
    (RequestCode.QUERY_CORRECTION_OFFSET, bodies.CorrectionOffsets, {"compareGroup": "bodies_g"}),
    (
        RequestCode.QUERY_CONSUME_QUEUE,
        bodies.QueueEntries,
        {"queueId": 0, "index": 0, "count": 2, "consumerGroup": "g"},
    ),
]

WITHOUT_TOPIC = {
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.GET_ALL_PRODUCER_INFO,
}


@pytest.mark.parametrize(("code", "kind", "fields"), ANSWERS, ids=lambda each: getattr(each, "name", ""))
def test_an_answer_is_read_and_written_again(
    client: ClusterClient, broker: str, topic: str, code: RequestCode, kind: type[Body], fields: dict[str, object]
) -> None:
    send(client, broker, topic, b"one", encode_properties(Message(topic, b"one", tags="a")), is_batch=False)
    read_first(1, client, broker, MessageQueue(topic, 0, "broker-a"))
    given = fields if code in WITHOUT_TOPIC else {"topic": topic, **fields}
    answer = client.call(broker, request(code, b"", **given))
    assert fastjson.read(kind.decode(answer.body).encode()) == fastjson.read(answer.body)
