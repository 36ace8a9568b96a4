"""Requests that name a message by its place in the log need what its topic needs, whatever topic they say it is of."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqclient.broker.limits.counters import Refusal
from rmqclient.broker.request import Request
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.store import Message, ReceivedMessage
from rmqclient.store.wire import encode_batch
from tests.broker.access.signing import Guarded, account, signed
from tests.broker.asking import LONGEST_S, Asking, AskingPeer, asking
from tests.broker.sending.sends import ONES, messages, read, send_of

COMMIT, ROLLBACK = 8, 12
HALF = {**ONES, "TRAN_MSG": "true", "PGROUP": "makers"}
DENIED = "org.apache.rocketmq.acl.common.AclException: No default permission for "


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Asking]:
    with asking(tmp_path / "store") as found:
        yield found


class Keyed:
    """A client with an access key."""

    def __init__(self, path: Path, broker: Asking, **rules: Any) -> None:
        self.broker = broker
        self.guarded = Guarded(path, account(**rules), handler=broker.broker.answer)

    def ask(self, frame: Frame) -> Frame:
        """Return the answer to a request that the client has signed."""
        peer = AskingPeer()

        async def answer() -> Frame | None:
            return self.guarded.guard.answer(Request(signed(frame), peer))

        answered = asyncio.run_coroutine_threadsafe(answer(), self.broker.loop).result(LONGEST_S)
        return answered or peer.wait_for(lambda sent: sent.opaque == frame.opaque)


def given_back(message: ReceivedMessage, **fields: Any) -> Frame:
    return request(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        **{"offset": message.commit_log_offset, "group": "billing", "delayLevel": 1, **fields},
    )


def decided(half: ReceivedMessage, decision: int, **fields: Any) -> Frame:
    return request(
        RequestCode.END_TRANSACTION,
        producerGroup="makers",
        tranStateTableOffset=half.queue_offset,
        commitLogOffset=half.commit_log_offset,
        commitOrRollback=decision,
        fromTransactionCheck=False,
        msgId=half.message_id,
        **fields,
    )


@pytest.mark.parametrize("origin", [{}, {"originTopic": "mine"}, {"originTopic": "secrets"}])
def test_a_message_of_a_topic_that_the_key_may_not_read_is_not_given_back(
    tmp_path: Path, broker: Asking, origin: dict[str, str]
) -> None:
    secret = read(broker, broker.ask_frame(send_of(b"secret", topic="secrets")))
    client = Keyed(
        tmp_path, broker, topicPerms=["mine=PUB|SUB", "secrets=PUB"], groupPerms=["billing=SUB"]
    )  # it may write there
    answer = client.ask(given_back(secret, **origin))
    assert (answer.code, answer.remark) == (1, f"{DENIED}topic:secrets")
    assert messages(broker, "SCHEDULE_TOPIC_XXXX") == []
    assert client.guarded.counters.count(Refusal.ACCESS) == 1


def test_a_message_of_the_retry_topic_of_another_group_is_not_given_back(tmp_path: Path, broker: Asking) -> None:
    theirs = read(broker, broker.ask_frame(send_of(b"secret", topic="%RETRY%theirs", queueId=0)))
    client = Keyed(tmp_path, broker, defaultTopicPerm="PUB|SUB", groupPerms=["billing=SUB"])
    assert client.ask(given_back(theirs)).remark == f"{DENIED}group:theirs"


@pytest.mark.parametrize("origin", [{}, {"originTopic": "orders"}])
def test_what_a_group_reads_is_given_back_also_for_its_next_attempt(
    tmp_path: Path, broker: Asking, origin: dict[str, str]
) -> None:
    client = Keyed(tmp_path, broker, topicPerms=["orders=PUB|SUB"], groupPerms=["billing=SUB"])
    first = read(broker, broker.ask_frame(send_of(b"failed")))
    again = read(broker, broker.ask_frame(send_of(b"failed", topic="%RETRY%billing", queueId=0)))
    for message in (first, again):
        assert client.ask(given_back(message, **origin)).code == 0


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("named", [{}, {"topic": "mine"}])
def test_a_transaction_is_decided_only_by_a_key_that_may_send_to_its_topic(
    tmp_path: Path, broker: Asking, decision: int, named: dict[str, str]
) -> None:
    half = read(broker, broker.ask_frame(send_of(b"theirs", HALF, sysFlag=4)))
    stranger = Keyed(tmp_path, broker, topicPerms=["mine=PUB|SUB", "orders=SUB"], groupPerms=["makers=SUB"])
    answer = stranger.ask(decided(half, decision, **named))
    assert (answer.code, answer.remark) == (1, f"{DENIED}topic:orders")
    assert messages(broker, "orders") == []
    maker = Keyed(tmp_path, broker, topicPerms=["orders=PUB"])
    assert maker.ask(decided(half, decision)).code == 0
    assert [message.body for message in messages(broker, "orders")] == ([b"theirs"] if decision == COMMIT else [])


def test_an_administrator_without_rules_may_decide_and_give_back_anything(tmp_path: Path, broker: Asking) -> None:
    message = read(broker, broker.ask_frame(send_of(b"secret", topic="secrets")))
    half = read(broker, broker.ask_frame(send_of(b"theirs", HALF, sysFlag=4)))
    operator = Keyed(tmp_path, broker, admin=True)
    assert operator.ask(given_back(message)).code == 0
    assert operator.ask(decided(half, COMMIT)).code == 0


WAITING = {
    "delay": {"DELAY": "18"},
    "timer": {"TIMER_DELAY_SEC": "3600"},
    "half": {"TRAN_MSG": "true", "PGROUP": "makers"},
    "queue": {},
}
TOPIC_OF = {"delay": "SCHEDULE_TOPIC_XXXX", "timer": "rmq_sys_wheel_timer", "half": "RMQ_SYS_TRANS_HALF_TOPIC"}


@pytest.mark.guarantee("G107")
@pytest.mark.parametrize("where", WAITING)
def test_a_record_is_read_only_by_a_key_that_may_read_its_topic_wherever_it_stands(
    tmp_path: Path, broker: Asking, where: str
) -> None:
    broker.ask_frame(send_of(b"secret", {**ONES, **WAITING[where]}, topic="secrets"))
    stored = TOPIC_OF.get(where, "secrets")
    (secret,) = messages(broker, stored)
    wide: dict[str, Any] = {"defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB"}
    stranger = Keyed(
        tmp_path, broker, **wide, topicPerms=["secrets=DENY", *(f"{each}=SUB" for each in TOPIC_OF.values())]
    )
    by_place = request(RequestCode.VIEW_MESSAGE_BY_ID, offset=secret.commit_log_offset)
    by_key = request(
        RequestCode.QUERY_MESSAGE, topic=stored, key=secret.message_id, maxNum=1, beginTimestamp=0, endTimestamp=2**60
    )
    for frame in (by_place, by_key, given_back(secret)):
        answer = stranger.ask(frame)
        assert (answer.code, answer.remark, answer.body) == (1, f"{DENIED}topic:secrets", b"")
    reader = Keyed(tmp_path, broker, topicPerms=["secrets=SUB"])
    assert reader.ask(request(RequestCode.VIEW_MESSAGE_BY_ID, offset=secret.commit_log_offset)).code == 0


def failed_copy(failed: ReceivedMessage, body: bytes, **changed: str) -> Frame:
    """Return what a consumer sends to its retry topic after the last attempt, when request 36 fails."""
    properties = {**failed.properties, "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": failed.offset_message_id or ""}
    return send_of(body, {**properties, **changed}, topic="%RETRY%billing", queueId=0, maxReconsumeTimes=0)


@pytest.mark.guarantee("G107")
@pytest.mark.parametrize(
    "changed", [{}, {"KEYS": "another"}, {"amount": "9"}, {"ORIGIN_MESSAGE_ID": f"{255:032X}"}, None]
)
def test_a_key_that_only_reads_a_topic_places_no_dead_letter_of_it_but_copies(
    tmp_path: Path, broker: Asking, changed: dict[str, str] | None
) -> None:
    failed = read(broker, broker.ask_frame(send_of(b"order 1")))
    reader = Keyed(tmp_path, broker, topicPerms=["orders=SUB"], groupPerms=["billing=SUB"])
    forged = failed_copy(failed, b"forged") if changed is None else failed_copy(failed, b"order 1", **changed)
    answer = reader.ask(forged)
    if changed == {}:
        assert answer.code == 0, answer.remark
        assert [message.body for message in messages(broker, "%DLQ%billing")] == [b"order 1"]
    else:
        assert (answer.code, answer.remark) == (1, f"{DENIED}topic:orders")
        assert messages(broker, "%DLQ%billing") == []


@pytest.mark.guarantee("G107")
def test_a_compressed_copy_is_known_by_what_it_opens_to(tmp_path: Path, broker: Asking) -> None:
    failed = read(broker, broker.ask_frame(send_of(b"order 1" * 100)))
    reader = Keyed(tmp_path, broker, topicPerms=["orders=SUB"], groupPerms=["billing=SUB"])
    for body, code in ((b"order 1" * 100, 0), (b"order 1" * 99, 1), (b"order 1" * 101, 1)):
        copy = failed_copy(failed, zlib.compress(body))
        copy.fields["f"] = "1"
        assert reader.ask(copy).code == code


@pytest.mark.guarantee("G107")
@pytest.mark.parametrize("origin", ["RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"])
@pytest.mark.parametrize("topic", ["%DLQ%billing", "mine"])
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_message_that_says_where_it_failed_needs_what_a_send_to_there_needs(
    tmp_path: Path, broker: Asking, origin: str, topic: str, is_batch: bool
) -> None:
    """A message of another topic that is given back takes its word into the dead letters."""
    properties = {**ONES, origin: "orders"}
    frame = send_of(b"forged", properties, topic=topic, queueId=0)
    if is_batch:
        inner = encode_batch([Message(topic, b"good"), Message(topic, b"forged")], [dict(ONES), properties])
        frame = send_of(inner, topic=topic, queueId=0, batch=True, code=RequestCode.SEND_BATCH_MESSAGE)
    rules: dict[str, Any] = {"groupPerms": ["billing=SUB"]}
    reader = Keyed(tmp_path, broker, topicPerms=["mine=PUB|SUB", "orders=SUB"], **rules)
    assert reader.ask(frame).remark == f"{DENIED}topic:orders"
    assert messages(broker, topic) == []
    sender = Keyed(tmp_path, broker, topicPerms=["mine=PUB|SUB", "orders=PUB"], **rules)
    assert sender.ask(frame).code == 0


@pytest.mark.parametrize("cut", [1, 30, -1])
def test_a_batch_whose_properties_cannot_be_read_is_refused(tmp_path: Path, broker: Asking, cut: int) -> None:
    inner = encode_batch([Message("mine", b"x")], [{**ONES, "RETRY_TOPIC": "orders"}])
    client = Keyed(tmp_path, broker, topicPerms=["mine=PUB"])
    for body in (inner[:cut] + b"RETRY_TOPIC\x01orders", inner[:cut] + b"_TOPIC\x01"):
        frame = send_of(body, topic="mine", queueId=0, batch=True, code=RequestCode.SEND_BATCH_MESSAGE)
        assert client.ask(frame).code != 0
    assert messages(broker, "mine") == []
