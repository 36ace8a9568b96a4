"""Batches: the messages of one request, all stored or none."""

from __future__ import annotations

import pytest

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import Message
from rmqclient.store.wire import encode_batch, parse_offset_id
from tests.broker.asking import Asking
from tests.broker.sending.sends import messages, send_of

OWN = ["7F00000144FC4E0E2F2A6DF22340000" + digit for digit in "789"]


def batch_of(body: bytes, properties: dict[str, str] | str = "WAIT\x01true") -> Frame:
    return send_of(body, properties, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)


def three() -> bytes:
    sent = [Message("orders", f"body {number}".encode(), tags="TagA", keys=f"key-{number}") for number in range(3)]
    return encode_batch(sent, [{"UNIQ_KEY": own, "WAIT": "true"} for own in OWN])


def test_each_message_of_a_batch_is_a_record_and_the_answer_names_them_all(client: Asking) -> None:
    client.ask_frame(send_of())
    answer = client.ask_frame(batch_of(three()))
    stored = messages(client, "orders")[1:]
    assert answer.code == 0
    assert answer.fields["msgId"] == ",".join(message.offset_message_id for message in stored)
    assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("1", "1")
    assert [(message.body, message.keys) for message in stored] == [
        (b"body 0", ("key-0",)),
        (b"body 1", ("key-1",)),
        (b"body 2", ("key-2",)),
    ]
    assert [message.message_id for message in stored] == OWN
    offsets = [parse_offset_id(each).commit_log_offset for each in answer.fields["msgId"].split(",")]
    assert offsets == [message.commit_log_offset for message in stored]


def test_each_message_gets_the_properties_of_its_batch_but_not_its_id(client: Asking) -> None:
    """A 5.3 client gives a batch an id of its own, which a stock broker puts behind that of each message."""
    client.ask_frame(batch_of(three(), {"UNIQ_KEY": "7F0000012F8E4E0E2F2A6DE1A9D6000A", "WAIT": "true", "all": "yes"}))
    stored = messages(client, "orders")
    assert [message.message_id for message in stored] == OWN
    for message in stored:
        added = [message.properties[name] for name in ("all", "CLUSTER", "MSG_REGION", "TRACE_ON")]
        assert added == ["yes", "DefaultCluster", "DefaultRegion", "true"]


def test_messages_without_ids_as_go_sends_them_get_one_each(client: Asking) -> None:
    bare = b"".join(
        (22 + 3).to_bytes(4, "big") + bytes(12) + (3).to_bytes(4, "big") + body + bytes(2) for body in (b"one", b"two")
    )
    assert client.ask_frame(batch_of(bare, "")).code == 0
    ids = {message.message_id for message in messages(client, "orders")}
    assert len(ids) == 2


@pytest.mark.parametrize(
    "body",
    [b"", b"abc", three()[:-1], three()[:40], (30).to_bytes(4, "big") + bytes(26), b"\xff\xff\xff\xff" + bytes(40)],
    ids=["empty", "short", "last byte lost", "cut", "sizes", "negative"],
)
def test_a_body_that_is_no_batch_stores_nothing(client: Asking, body: bytes) -> None:
    answer = client.ask_frame(batch_of(body))
    assert answer.code == 13
    assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert messages(client, "orders") == []


def test_a_batch_with_one_message_that_is_too_long_stores_nothing(client: Asking) -> None:
    good, wrong = three(), (22 + 40_000).to_bytes(4, "big") + bytes(16) + b"\x7f\xff" + b"k\x01" + b"v" * 39_998
    assert client.ask_frame(batch_of(good + wrong)).code == 13
    assert messages(client, "orders") == []


def test_a_retry_topic_takes_no_batch(client: Asking) -> None:
    frame = batch_of(three())
    frame.fields |= {"b": "%RETRY%billing", "e": "0"}
    answer = client.ask_frame(frame)
    assert (answer.code, answer.remark) == (13, "batch request does not support retry group %RETRY%billing")
