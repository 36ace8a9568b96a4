"""Transactions: half messages of remote producers, and the decisions about them."""

from __future__ import annotations

from typing import Any

from rmqclient.broker.address import Address
from rmqclient.broker.producers.questions import restored
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue, ReceivedMessage
from rmqclient.store.wire import decode_records
from tests.broker.asking import Asking
from tests.broker.sending.sends import ONES, UNIQ_KEY, messages, only, read, send_of

COMMIT, ROLLBACK = 8, 12
HALF = {**ONES, "TRAN_MSG": "true", "PGROUP": "makers"}


def begun(client: Asking) -> ReceivedMessage:
    return read(client, client.ask_frame(send_of(properties=HALF, sysFlag=4, queueId=3)))


def end(client: Asking, half: ReceivedMessage, decision: int, **fields: Any) -> Frame:
    return client.ask(
        RequestCode.END_TRANSACTION,
        **{
            "producerGroup": "makers",
            "tranStateTableOffset": half.queue_offset,
            "commitLogOffset": half.commit_log_offset,
            "commitOrRollback": decision,
            "fromTransactionCheck": False,
            "msgId": UNIQ_KEY,
            **fields,
        },
    )


def test_a_half_message_waits_where_the_answer_says(client: Asking) -> None:
    client.ask_frame(send_of(properties=HALF, sysFlag=4))
    answer = client.ask_frame(send_of(properties=HALF, sysFlag=4, queueId=3))
    half = read(client, answer)
    assert (half.topic, half.queue_id, half.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
    assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("3", "1")
    expected = {"REAL_TOPIC": "orders", "REAL_QID": "3", "PGROUP": "makers", "TRAN_MSG": "true", "UNIQ_KEY": UNIQ_KEY}
    assert {name: half.properties[name] for name in expected} == expected
    assert messages(client, "orders") == []


def test_a_committed_message_comes_to_its_queue_once(client: Asking) -> None:
    half = begun(client)
    for _ in range(2):  # a stock broker would store it again
        answer = end(client, half, COMMIT)
        assert (answer.code, answer.fields) == (0, {})
    found = only(client, "orders")
    assert (found.queue_id, found.body, found.message_id) == (3, b"hello", UNIQ_KEY)
    assert (found.sys_flag, found.prepared_transaction_offset) == (8, half.commit_log_offset)
    assert len(messages(client, "RMQ_SYS_TRANS_OP_HALF_TOPIC")) == 1


def test_a_message_that_is_rolled_back_never_comes(client: Asking) -> None:
    half = begun(client)
    assert end(client, half, ROLLBACK).code == 0
    refused = end(client, half, COMMIT)
    assert (refused.code, refused.remark) == (1, f"the transaction of message {UNIQ_KEY} was rolled back already")
    assert messages(client, "orders") == []


def test_a_decision_after_a_question_counts_like_any_other(client: Asking) -> None:
    assert end(client, begun(client), COMMIT, fromTransactionCheck=True).code == 0
    assert only(client, "orders").body == b"hello"


def test_only_the_half_message_of_the_own_group_can_be_decided(client: Asking) -> None:
    half = begun(client)
    plain = read(client, client.ask_frame(send_of(topic="other", properties={**ONES, "PGROUP": "makers"})))
    for asked, remark in (
        (end(client, half, COMMIT, producerGroup="others"), "The producer group wrong"),
        (end(client, half, COMMIT, tranStateTableOffset=7), "The transaction state table offset wrong"),
        (end(client, half, COMMIT, commitLogOffset=999_999), "Find prepared transaction message failed"),
        (end(client, half, COMMIT, commitLogOffset=-1), "Find prepared transaction message failed"),
        (end(client, plain, COMMIT), "Find prepared transaction message failed"),
    ):
        assert (asked.code, asked.remark) == (1, remark)
    assert messages(client, "orders") == []
    assert len(client.broker.store.transactions.pending()) == 1


def test_a_question_brings_the_half_message_under_its_own_name(client: Asking) -> None:
    half = begun(client)
    (found,) = decode_records(restored(half, MessageQueue("a_longer_name_of_a_topic", 3)))
    assert (found.topic, found.queue_id) == ("a_longer_name_of_a_topic", 3)
    assert (found.body, found.properties) == (half.body, half.properties)
    assert (found.commit_log_offset, found.queue_offset) == (half.commit_log_offset, half.queue_offset)


def test_a_question_about_a_message_of_an_ipv6_client_is_whole(client: Asking) -> None:
    sender = client.at(Address("2001:db8::7", 9876))
    half = read(sender, sender.ask_frame(send_of(properties=HALF, sysFlag=4, queueId=3)))
    (found,) = decode_records(restored(half, MessageQueue("orders", 3)))
    assert (found.topic, found.body, found.properties) == ("orders", b"hello", half.properties)


def test_an_administrator_asks_only_about_half_messages(client: Asking) -> None:
    half = begun(client)
    plain = read(client, client.ask_frame(send_of(topic="other")))
    resume = RequestCode.RESUME_CHECK_HALF_MESSAGE
    assert client.ask(resume, msgId=half.offset_message_id).code == 0
    for wrong in (plain.offset_message_id, "x", "", "FF" * 16):
        assert client.ask(resume, msgId=wrong).code == 1
