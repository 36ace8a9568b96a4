"""Bodies: what is read from each client's way of writing them, and what is written."""

from __future__ import annotations

import json

import pytest

from rmqclient.remoting.bodies import (
    ConsumeFrom,
    ConsumerData,
    ConsumerIds,
    ConsumeType,
    Heartbeat,
    LockedQueues,
    LockRequest,
    MessageModel,
    ProducerData,
    RouteBroker,
    RouteQueue,
    Subscription,
    TopicRoute,
)
from rmqclient.remoting.errors import BodyError
from rmqclient.store import MessageQueue

ROUTE = TopicRoute(
    (RouteBroker("broker-a", "C", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}),),
    (RouteQueue("broker-a", 4, 8, 6, 0),),
)


def test_a_route_is_read_with_and_without_quotes_around_broker_ids() -> None:
    bare = ROUTE.encode(as_fastjson=True)
    assert b'{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}' in bare
    assert json.loads(ROUTE.encode())["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}
    assert TopicRoute.decode(bare) == TopicRoute.decode(ROUTE.encode()) == ROUTE


def test_fields_are_written_in_the_order_of_their_names_without_those_that_are_none() -> None:
    assert RouteQueue("broker-a", 4, 8, 6, 0).encode() == (
        b'{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8}'
    )
    assert b"orderTopicConf" not in ROUTE.encode()


def test_a_heartbeat_of_the_cpp_client_has_places_for_names_and_texts_for_numbers() -> None:
    heartbeat = Heartbeat.decode(
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g","messageModel":1,'
        b'"subscriptionDataSet":[{"subString":"*","subVersion":"1795334791518","topic":"t"}]}]}\n'
    )
    assert heartbeat == Heartbeat(
        "c",
        (),
        (
            ConsumerData(
                "g",
                ConsumeType.CONSUME_PASSIVELY,
                MessageModel.CLUSTERING,
                ConsumeFrom.CONSUME_FROM_FIRST_OFFSET,
                (Subscription("t", "*", 1795334791518),),
            ),
        ),
    )


def test_a_heartbeat_of_the_go_client_has_hashes_as_texts() -> None:
    assert Subscription.decode(b'{"topic":"t","subString":"A","codeSet":["65"],"tagsSet":["A"]}').codes == (65,)


def test_nulls_and_unknown_fields_are_as_if_absent() -> None:
    body = b'{"clientID":"c","consumerDataSet":null,"producerDataSet":[{"groupName":"p","x":1}],"later":{"y":[]}}'
    assert Heartbeat.decode(body) == Heartbeat("c", (ProducerData("p"),))


def test_a_set_of_queues_is_an_array_of_objects() -> None:
    request = LockRequest("g", "c", (MessageQueue("t", 2, "broker-a"),))
    assert request.encode() == (
        b'{"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":"broker-a","queueId":2,"topic":"t"}]}'
    )
    assert LockRequest.decode(request.encode()) == request
    assert LockedQueues.decode(b'{"lockOKMQSet":[{"topic":"t","brokerName":"broker-a","queueId":2}]}').queues == (
        MessageQueue("t", 2, "broker-a"),
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[]", "Heartbeat is an object, not []"),
        (b"{}", "Heartbeat lacks its field clientID"),
        (b'{"clientID":{}}', "clientID: a text is expected, not {}"),
        (b'{"clientID":"c","consumerDataSet":{}}', "consumerDataSet: an array is expected, not {}"),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","messageModel":"X"}]}',
            "consumerDataSet: messageModel: one of BROADCASTING, CLUSTERING is expected, not 'X'",
        ),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","unitMode":"yes"}]}',
            "consumerDataSet: unitMode: true or false is expected, not 'yes'",
        ),
        (
            b'{"clientID":"c","heartbeatFingerprint":9223372036854775808}',
            "heartbeatFingerprint: a whole number of 64 bits is expected, not 9223372036854775808",
        ),
    ],
)
def test_a_body_that_does_not_fit_is_refused_and_the_field_named(body: bytes, said: str) -> None:
    with pytest.raises(BodyError) as raised:
        Heartbeat.decode(body)
    assert str(raised.value) == said


def test_a_list_of_members_without_members_is_empty() -> None:
    assert ConsumerIds.decode(b"{}") == ConsumerIds(())
