"""The cluster with messages that other tests talk to, tested alone."""

from __future__ import annotations

from typing import Any

import orjson

from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import RequestCode, ResponseCode, request, request_fields, response_fields
from rmqclient.store.wire import decode_records
from tests.support.cluster.caller import Caller, connected
from tests.support.cluster.keeping_cluster import HALF, MAY_WAIT, keeping_cluster

PULL = RequestCode.PULL_MESSAGE


def sent(body: bytes, **more: Any) -> Frame:
    fields: dict[str, Any] = {
        "producerGroup": "p",
        "topic": "orders",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
    }
    fields |= {"queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "TAGS\x01a\x02", **more}
    return request(RequestCode.SEND_MESSAGE_V2, body, **fields)


def pull(offset: int, topic: str = "orders", **more: Any) -> Frame:
    fields: dict[str, Any] = {
        "consumerGroup": "g",
        "topic": topic,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
    }
    fields |= {"sysFlag": 0, "commitOffset": 0, "suspendTimeoutMillis": 10_000, "subVersion": 0, **more}
    return request(PULL, **fields)


def back(offset: int) -> Frame:
    code = RequestCode.CONSUMER_SEND_MSG_BACK
    return request(code, offset=offset, group="g", delayLevel=3, maxReconsumeTimes=1)


def heartbeat(client_id: str) -> Frame:
    body = {"clientID": client_id, "consumerDataSet": [{"groupName": "g"}], "producerDataSet": []}
    return request(RequestCode.HEART_BEAT, orjson.dumps(body))


def bodies(answer: Frame) -> list[bytes]:
    return [message.body for message in decode_records(answer.body)]


def next_of(answer: Frame) -> int:
    offset = response_fields(PULL, answer)["nextBeginOffset"]
    assert isinstance(offset, int)
    return offset


def test_what_is_sent_can_be_pulled() -> None:
    with keeping_cluster() as kept, connected(kept.cluster.address) as me:
        answers = [response_fields(RequestCode.SEND_MESSAGE_V2, me.ask(sent(body))) for body in (b"one", b"two")]
        assert [answer["queueOffset"] for answer in answers] == [0, 1]

        pulled = me.ask(pull(0))
        assert (bodies(pulled), next_of(pulled)) == ([b"one", b"two"], 2)
        assert me.ask(pull(2)).code == ResponseCode.PULL_NOT_FOUND
        moved = me.ask(pull(3))
        assert (moved.code, next_of(moved)) == (ResponseCode.PULL_OFFSET_MOVED, 2)


def test_a_pull_takes_the_tags_that_it_names() -> None:
    with keeping_cluster() as kept, connected(kept.cluster.address) as me:
        kept.put("orders", b"one", TAGS="a")
        kept.put("orders", b"two", TAGS="b")
        assert bodies(me.ask(pull(0, subscription="b || c"))) == [b"two"]
        nothing = me.ask(pull(0, subscription="c"))
        assert (nothing.code, next_of(nothing)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2)


def test_a_pull_that_may_wait_is_answered_when_a_message_comes() -> None:
    with keeping_cluster() as kept, connected(kept.cluster.address) as me:
        me.send(pull(0, sysFlag=MAY_WAIT))
        kept.cluster.wait_for(PULL)
        kept.put("orders", b"late")
        assert bodies(me.receive()) == [b"late"]


def test_a_pull_waits_only_as_long_as_it_says() -> None:
    with keeping_cluster() as kept, connected(kept.cluster.address) as me:
        assert me.ask(pull(0, sysFlag=MAY_WAIT, suspendTimeoutMillis=1)).code == ResponseCode.PULL_NOT_FOUND


def test_a_message_that_is_sent_back_comes_to_the_retry_topic_and_at_last_to_the_dead_letters() -> None:
    with keeping_cluster() as kept, connected(kept.cluster.address) as me:
        place = kept.put("orders", b"bad", KEYS="k").commit_log_offset
        me.ask(back(place))
        (retried,) = kept.messages("%RETRY%g")
        me.ask(back(retried.commit_log_offset))

        assert retried.reconsume_times == 1
        assert retried.property_map["RETRY_TOPIC"] == "orders"
        (dead,) = kept.messages("%DLQ%g")
        assert (dead.body, dead.property_map["KEYS"]) == (b"bad", "k")


def test_a_half_message_is_there_when_it_is_committed() -> None:
    with keeping_cluster() as kept, connected(kept.cluster.address) as me:
        half = response_fields(RequestCode.SEND_MESSAGE_V2, me.ask(sent(b"paid", sysFlag=4)))
        assert (kept.bodies("orders"), kept.bodies(HALF)) == ([], [b"paid"])
        place: dict[str, Any] = {
            "commitLogOffset": int(half["msgId"][16:], 16),
            "tranStateTableOffset": half["queueOffset"],
        }
        me.ask(request(RequestCode.END_TRANSACTION, producerGroup="p", commitOrRollback=8, msgId="id", **place))
        assert kept.bodies("orders") == [b"paid"]


def test_a_message_is_found_by_its_key_and_by_its_place() -> None:
    with keeping_cluster() as kept, connected(kept.cluster.address) as me:
        place = kept.put("orders", b"one", KEYS="k1 k2").commit_log_offset
        between: dict[str, Any] = {"beginTimestamp": 0, "endTimestamp": 1, "maxNum": 32}
        assert bodies(me.ask(request(RequestCode.QUERY_MESSAGE, topic="orders", key="k2", **between))) == [b"one"]
        assert bodies(me.ask(request(RequestCode.VIEW_MESSAGE_BY_ID, offset=place))) == [b"one"]
        unknown = me.ask(request(RequestCode.QUERY_MESSAGE, topic="orders", key="k3", **between))
        assert unknown.code == ResponseCode.QUERY_NOT_FOUND


def test_members_are_told_when_another_one_joins_or_leaves() -> None:
    with keeping_cluster() as kept, connected(kept.cluster.address) as me:
        assert joined(me, "me") == "g"
        with connected(kept.cluster.address) as other:
            assert joined(other, "other") == "g"
            assert group_of(me.receive()) == "g"
        assert group_of(me.receive()) == "g"
        members = me.ask(request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g"))
        assert orjson.loads(members.body) == {"consumerIdList": ["me"]}


def joined(caller: Caller, client_id: str) -> str:
    """Send a heartbeat; return the group whose members the broker then speaks of."""
    told = caller.ask(heartbeat(client_id))
    assert caller.receive().is_response
    return group_of(told)


def group_of(notice: Frame) -> str:
    assert notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert notice.is_oneway
    group = request_fields(notice)["consumerGroup"]
    assert isinstance(group, str)
    return group
