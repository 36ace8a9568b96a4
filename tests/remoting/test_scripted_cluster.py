"""The cluster that other tests talk to, tested alone."""

from __future__ import annotations

import orjson
import pytest

from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import RequestCode, ResponseCode, request, response, response_fields
from tests.support.cluster.caller import connected
from tests.support.cluster.scripted_cluster import scripted_cluster

CODE = RequestCode.GET_MAX_OFFSET
QUESTION = request(CODE, topic="orders", queueId=1)


def test_it_answers_as_the_script_says_and_remembers_what_it_was_asked() -> None:
    with scripted_cluster({CODE: lambda asked: response(asked, offset=7)}) as cluster, connected(cluster.address) as me:
        assert response_fields(CODE, me.ask(QUESTION)) == {"offset": 7}
        assert cluster.asked(CODE) == [QUESTION]


def test_a_topic_has_queues_on_each_broker() -> None:
    with scripted_cluster(topics={"orders": 2}, brokers=("a", "b")) as cluster, connected(cluster.address) as me:
        route = orjson.loads(me.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")).body)
        unknown = me.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="other"))

        assert [data["brokerAddrs"]["0"] for data in route["brokerDatas"]] == list(cluster.brokers.values())
        assert [(data["brokerName"], data["readQueueNums"]) for data in route["queueDatas"]] == [("a", 2), ("b", 2)]
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST


def test_it_asks_the_members_and_hears_their_answers() -> None:
    heartbeat = orjson.dumps({"clientID": "me", "consumerDataSet": [{"groupName": "g"}], "producerDataSet": []})
    with scripted_cluster(version=479) as cluster, connected(cluster.address) as me:
        assert me.ask(request(RequestCode.HEART_BEAT, heartbeat)).version == 479
        assert cluster.push(request(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="me")) == 1
        me.send(response(me.receive(), body=b"info"))

        assert [answer.body for answer in cluster.wait_for_answers()] == [b"info"]
        assert b"me" in me.ask(request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")).body


def test_a_held_request_is_answered_later() -> None:
    with scripted_cluster({CODE: lambda _: None}) as cluster, connected(cluster.address) as me:
        me.send(QUESTION)
        (held,) = cluster.wait_for(CODE)
        cluster.answer(response(held, offset=3))
        assert response_fields(CODE, me.receive()) == {"offset": 3}


def test_it_hangs_up_when_told() -> None:
    with scripted_cluster() as cluster, connected(cluster.address) as me:
        me.ask(QUESTION)
        cluster.hang_up()
        with pytest.raises(ConnectionResetError):
            me.ask(QUESTION)


def test_an_error_in_a_script_is_raised_where_the_block_ends() -> None:
    def failing(_: Frame) -> Frame:
        raise LookupError("no such queue")

    with (
        pytest.raises(LookupError, match="no such queue"),
        scripted_cluster({CODE: failing}) as cluster,
        connected(cluster.address) as me,
        pytest.raises(ConnectionResetError),
    ):
        me.ask(QUESTION)
