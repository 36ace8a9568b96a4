"""Who is connected; questions to one consumer; moving a group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, PullConsumer
from rmqclient.broker.address import Address
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.remoting.bodies import (
    Connection,
    ConsumerConnection,
    ConsumerData,
    ConsumerStatus,
    Heartbeat,
    MessageModel,
    ProducerConnection,
    ProducerData,
    ProducerTable,
    ResetOffset,
    RunningInfo,
    Subscription,
)
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue
from rmqclient.store.marks import marks_of
from rmqclient.store.settings.config_file import TopicConfig
from tests.broker.asking import Asking, AskingPeer, asking

TWO = TopicConfig(read_queue_count=2, write_queue_count=2)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Asking]:
    with asking(tmp_path) as found:
        found.broker.topics.create("orders", TWO)
        yield found


# --- who is connected -----------------------------------------------------------------------------


def test_consumers_are_told_as_their_heartbeats_tell_them(client: Asking) -> None:
    _join(client)
    told = ConsumerConnection.decode(_consumers(client, "readers").body)
    assert told.connections == (Connection("java@1", "10.0.0.1:50001", "PYTHON", 407),)
    assert told.subscriptions["orders"].expression == "TagA"
    assert told.message_model is MessageModel.CLUSTERING


def test_a_group_without_members_is_not_online(client: Asking) -> None:
    answer = _consumers(client, "nope")
    assert (answer.code, answer.remark) == (206, "the consumer group[nope] not online")


def test_local_workers_are_members_too(client: Asking) -> None:
    app = App(client.broker.store.root)

    @app.handler("orders", group="locals")
    def handle(body: bytes) -> None:
        """Take everything."""

    consumer = PushConsumer(client.broker.store.root, app.handlers)
    consumer.start()
    try:
        told = ConsumerConnection.decode(_consumers(client, "locals").body)
        (local,) = told.connections
        assert (local.language, local.version) == ("PYTHON", 407)
        assert {"orders"} <= told.subscriptions.keys()
        info = RunningInfo.decode(
            client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="locals", clientId=local.client_id).body
        )
        assert {queue.topic for queue in info.queues} >= {"orders"}
    finally:
        consumer.close()


def test_producers_are_told_by_group(client: Asking) -> None:
    client.beat(Heartbeat("java@2", producers=(ProducerData("shop"),)), Address("10.0.0.2", 50002))
    told = ProducerConnection.decode(client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="shop").body)
    assert [each.client_id for each in told.connections] == ["java@2"]
    table = ProducerTable.decode(client.ask(RequestCode.GET_ALL_PRODUCER_INFO).body).groups
    assert [(each.client_id, each.address) for each in table["shop"]] == [("java@2", "10.0.0.2:50002")]
    unknown = client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="nope")
    assert (unknown.code, unknown.remark) == (1, "the producer group[nope] not exist")


# --- questions to one consumer --------------------------------------------------------------------


def test_a_question_goes_to_the_consumer_and_its_answer_comes_back_as_it_is(client: Asking) -> None:
    peer = _join(client)
    peer.reply = Frame(0, body=b'{"properties":{}}', flag=1)
    answer = client.ask(
        RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="readers", clientId="java@1", jstackEnable=True
    )
    assert (answer.code, answer.body) == (0, b'{"properties":{}}')
    (asked,) = peer.called
    assert asked.fields == {"consumerGroup": "readers", "clientId": "java@1", "jstackEnable": "true"}


def test_a_consumer_that_does_not_answer_is_told_of(client: Asking) -> None:
    _join(client)
    answer = client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="readers", clientId="java@1")
    assert (answer.code, "java@1" in (answer.remark or "")) == (207, True)


def test_a_consumer_that_is_not_there_is_told_of(client: Asking) -> None:
    answer = client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="readers", clientId="nobody")
    assert (answer.code, answer.remark) == (1, "The Consumer <readers> <nobody> not online")


def test_a_message_is_given_to_a_consumer_as_it_stands_in_the_log(client: Asking) -> None:
    peer = _join(client)
    peer.reply = Frame(0, body=b'{"consumeResult":"CR_SUCCESS"}', flag=1)
    with Producer(client.broker.store.root) as producer:
        sent = producer.send(Message(topic="orders", body=b"content"))
    message_id = client.broker.store.messages.at(sent.queue, sent.queue_offset).offset_message_id
    answer = client.ask(
        RequestCode.CONSUME_MESSAGE_DIRECTLY, consumerGroup="readers", clientId="java@1", msgId=message_id
    )
    assert answer.code == 0, answer.remark
    assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'
    (asked,) = peer.called
    assert b"content" in asked.body
    assert asked.fields["brokerName"] == "broker-a"
    wrong = client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, consumerGroup="readers", clientId="java@1", msgId="zz")
    assert wrong.code == 1


def test_every_member_is_asked_how_far_it_is(client: Asking) -> None:
    offsets = {MessageQueue("orders", 0, "broker-a"): 7}
    for number in (1, 2):
        peer = _join(client, number)
        peer.reply = Frame(0, body=ConsumerStatus(offsets).encode(as_fastjson=True), flag=1)
    answer = client.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="orders", group="readers")
    assert ConsumerStatus.decode(answer.body).members == {"java@1": offsets, "java@2": offsets}


# --- moving a group -------------------------------------------------------------------------------


def test_a_group_without_members_is_moved(client: Asking) -> None:
    _fill(client)
    _commit(client, "readers", 3)
    answer = _reset(client, "readers", timestamp=0)
    assert ResetOffset.decode(answer.body).offsets == {MessageQueue("orders", at, "broker-a"): 0 for at in (0, 1)}
    assert _committed(client, "readers") == [0, 0]
    _reset(client, "readers", timestamp=-1)
    assert _committed(client, "readers") == [3, 3]


def test_without_force_a_group_only_goes_back(client: Asking) -> None:
    _fill(client)
    _commit(client, "readers", 1)
    _reset(client, "readers", timestamp=-1, force=False)
    assert _committed(client, "readers") == [1, 1]


def test_a_newer_client_moves_one_queue_to_an_offset(client: Asking) -> None:
    _fill(client)
    _commit(client, "readers", 3)
    _reset(client, "readers", timestamp=-1, queue=1, offset=2)
    assert _committed(client, "readers") == [3, 2]


def test_an_unknown_group_or_topic_is_not_moved(client: Asking) -> None:
    assert _reset(client, "nope", timestamp=0).remark == "THe consumer group <nope> not exist"
    unknown = _reset(client, "nope", timestamp=0, topic="nope")
    assert (unknown.code, "no topic in this broker. topic=nope" in (unknown.remark or "")) == (1, True)


def test_a_broadcast_consumer_is_told_where_to_go_on(client: Asking) -> None:
    _fill(client)
    peer = _join(client, model=MessageModel.BROADCASTING)
    _reset(client, "readers", timestamp=0)
    told = peer.wait_for(lambda frame: frame.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
    assert set(ResetOffset.decode(told.body).offsets.values()) == {0}


def test_a_group_is_moved_to_where_another_one_is(client: Asking) -> None:
    _fill(client)
    _commit(client, "readers", 2)
    assert client.ask(RequestCode.CLONE_GROUP_OFFSET, srcGroup="readers", destGroup="copies", topic="orders").code == 0
    assert _committed(client, "copies") == [2, 2]


@pytest.mark.guarantee("G128")
def test_a_move_by_a_tool_is_marked_with_the_address_of_its_client(client: Asking) -> None:
    _fill(client)
    _commit(client, "readers", 2)
    _reset(client, "readers", timestamp=0)
    client.ask(RequestCode.CLONE_GROUP_OFFSET, srcGroup="readers", destGroup="copies", topic="orders")
    marks = [tuple(mark[1:5]) for mark in marks_of(client.broker.store.root)]
    places = "orders 0 to 0, orders 1 to 0"
    peer = str(AskingPeer().remote)
    assert marks == [("seek", "readers", peer, places), ("seek", "copies", peer, places)]


def _consumers(client: Asking, group: str) -> Frame:
    return client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)


def _join(client: Asking, number: int = 1, model: MessageModel = MessageModel.CLUSTERING) -> AskingPeer:
    data = ConsumerData("readers", message_model=model, subscriptions=(Subscription("orders", "TagA", 1),))
    return _beat(client, Heartbeat(f"java@{number}", consumers=(data,)), Address(f"10.0.0.{number}", 50000 + number))


def _beat(client: Asking, heartbeat: Heartbeat, remote: Address) -> AskingPeer:
    return client.beat(heartbeat, remote)


def _reset(
    client: Asking,
    group: str,
    *,
    timestamp: int,
    force: bool = True,
    topic: str = "orders",
    queue: int | None = None,
    offset: int | None = None,
) -> Frame:
    return client.ask(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        topic=topic,
        group=group,
        timestamp=timestamp,
        isForce=force,
        queueId=queue,
        offset=offset,
    )


def _fill(client: Asking) -> None:
    with Producer(client.broker.store.root) as producer, PullConsumer(client.broker.store.root, group="x") as consumer:
        while any(consumer.max_offset(queue) < 3 for queue in consumer.queues("orders")):
            producer.send(Message(topic="orders", body=b"x"))


def _commit(client: Asking, group: str, offset: int) -> None:
    with PullConsumer(client.broker.store.root, group=group) as consumer:
        for queue in consumer.queues("orders"):
            consumer.commit(queue, offset)


def _committed(client: Asking, group: str) -> list[int | None]:
    with PullConsumer(client.broker.store.root, group=group) as consumer:
        return [consumer.committed_offset(queue) for queue in consumer.queues("orders")]
