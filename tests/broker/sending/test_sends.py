"""Sends: what is stored of a message that came over the network, and how it is answered."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from rmqclient.broker.address import Address
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.store.settings.config_file import TopicConfig
from tests.broker.asking import Asking, asking
from tests.broker.sending.sends import ONES, UNIQ_KEY, messages, only, read, send_of, text

EXTRAS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def test_a_message_is_stored_as_it_was_sent_and_the_answer_says_where(client: Asking) -> None:
    answer = client.ask_frame(send_of(b"hello", sysFlag=0x301, flag=7, reconsumeTimes=2))
    assert (answer.code, answer.version) == (0, 407)
    assert answer.fields == {"msgId": "7F000001000026940000000000000000", "queueId": "1", "queueOffset": "0"} | EXTRAS
    found = read(client, answer)
    assert (found.topic, found.queue_id, found.queue_offset) == ("orders", 1, 0)
    assert (found.stored_body, found.sys_flag, found.flag) == (b"hello", 0x301, 7)
    assert (found.reconsume_times, found.born_timestamp) == (2, 1_795_333_100_028)
    assert found.record()[48:56] == bytes((10, 0, 0, 9)) + (40_000).to_bytes(4, "big")
    assert (found.message_id, found.offset_message_id) == (UNIQ_KEY, answer.fields["msgId"])


def test_a_broker_adds_its_cluster_and_region_and_takes_the_wait_out(client: Asking) -> None:
    found = read(client, client.ask_frame(send_of(properties={"color": "blue", **ONES})))
    assert found.properties == {
        "color": "blue",
        "KEYS": "k1 k2",
        "UNIQ_KEY": UNIQ_KEY,
        "TAGS": "TagA",
        "CLUSTER": "DefaultCluster",
        **EXTRAS,
    }


def test_the_id_has_the_address_by_which_the_client_came_in(client: Asking) -> None:
    for address, begin in (
        (Address("192.168.7.1", 10_911), "C0A8070100002A9F"),
        (Address("::ffff:192.168.7.1", 10_911), "C0A8070100002A9F"),
        (Address("2001:db8::7", 9876), "20010DB800000000000000000000000700002694"),
    ):
        answer = client.at(address).ask_frame(send_of())
        assert answer.fields["msgId"].startswith(begin)
        assert len(answer.fields["msgId"]) == len(begin) + 16
        assert read(client, answer).offset_message_id == answer.fields["msgId"]


def test_old_clients_send_with_long_names_and_others_with_numbers(client: Asking) -> None:
    assert client.ask_frame(send_of(code=RequestCode.SEND_MESSAGE)).code == 0
    frame = send_of()
    del frame.fields["m"], frame.fields["j"], frame.fields["k"], frame.fields["i"]
    assert client.ask_frame(frame).code == 0
    assert len(messages(client, "orders")) == 2


def test_a_message_without_an_id_gets_one(client: Asking) -> None:
    found = read(client, client.ask_frame(send_of(properties="")))
    assert len(found.message_id) == 32
    assert found.message_id != found.offset_message_id


def test_a_broker_chooses_among_the_queues_when_the_client_does_not(client: Asking) -> None:
    answers = [client.ask_frame(send_of(queueId=-1)) for _ in range(40)]
    chosen = {answer.fields["queueId"] for answer in answers}
    assert len(chosen) > 1
    assert chosen <= {"0", "1", "2", "3"}


def test_the_first_message_makes_a_topic_with_the_queues_that_the_client_wishes(client: Asking) -> None:
    client.ask_frame(send_of(topic="few", defaultTopicQueueNums=2))
    client.ask_frame(send_of(topic="many", defaultTopicQueueNums=99))
    assert len(client.broker.topics.queues("few")) == 2
    assert len(client.broker.topics.queues("many")) == 8


def test_a_retry_topic_is_made_even_when_topics_are_not(tmp_path: Path) -> None:
    with asking(tmp_path, auto_create_topics=False) as client:
        assert client.ask_frame(send_of()).code == 17
        answer = client.ask_frame(send_of(topic="%RETRY%billing", queueId=0, maxReconsumeTimes=16))
        assert answer.code == 0
        assert only(client, "%RETRY%billing").body == b"hello"


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": ""}, 1, "The specified topic is blank."),
        ({"topic": "bad name"}, 1, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ({"topic": "../x"}, 1, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ({"topic": "t" * 128}, 1, "The specified topic is longer than topic max length."),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "Sending message to topic[RMQ_SYS_TRANS_HALF_TOPIC] is forbidden."),
        ({"topic": "rmq_sys_wheel_timer"}, 16, "Sending message to topic[rmq_sys_wheel_timer] is forbidden."),
        (
            {"topic": "new", "defaultTopic": "no_default"},
            17,
            "topic[new] not exist, apply first please!\nSee http://rocketmq.apache.org/docs/faq/ for further details.",
        ),
        (
            {"queueId": 99},
            1,
            (
                "request queueId[99] is illegal, TopicConfig [topicName=orders, readQueueNums=4, writeQueueNums=4, "
                "perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] Producer: 10.0.0.9:40000"
            ),
        ),
        ({"properties": "DELAY\x01soon"}, 1, "a delay level: 'soon' is not a number"),
        ({"properties": "TIMER_DELIVER_MS\x01soon"}, 13, "timer message illegal: 'soon' is not a number"),
    ],
)
def test_a_broker_refuses(client: Asking, fields: dict[str, Any], code: int, remark: str) -> None:
    answer = client.ask_frame(send_of(**fields))
    assert (answer.code, answer.remark, answer.fields) == (code, remark, EXTRAS)


def test_a_broker_refuses_what_is_too_long(client: Asking) -> None:
    for frame in (
        send_of(b"x" * (4 * 1024 * 1024 + 1)),
        send_of(properties={"k": "v" * 32_768}),
        send_of(b"x" * (4 * 1024 * 1024 + 1), code=RequestCode.SEND_BATCH_MESSAGE, batch=True),
    ):
        answer = client.ask_frame(frame)
        assert (answer.code, answer.fields) == (13, EXTRAS)
        assert (answer.remark or "").startswith("the message is illegal")
    assert messages(client, "orders") == []


def test_a_body_of_the_longest_size_and_an_empty_one_are_stored(client: Asking) -> None:
    for body in (b"x" * (4 * 1024 * 1024), b""):
        assert read(client, client.ask_frame(send_of(body))).body == body


def test_a_request_without_its_fields_is_refused_without_fields(client: Asking) -> None:
    answer = client.ask_frame(Frame(310, {"b": "orders"}, b"x"))
    assert (answer.code, answer.fields) == (1, {})
    assert "needs bornTimestamp" in (answer.remark or "")


def test_a_client_cannot_say_what_only_the_store_says(client: Asking) -> None:
    properties = {**ONES, "INNER_NUM": "3", "TIMER_DEL_UNIQKEY": "x", "__CRC32#": "0123456789"}
    found = read(client, client.ask_frame(send_of(properties=properties, sysFlag=0x7FFF_FFFF)))
    assert found.sys_flag == 0x703
    assert found.properties.keys() == {"KEYS", "UNIQ_KEY", "TAGS", "CLUSTER", *EXTRAS}


def test_a_server_for_reading_only_takes_no_message(tmp_path: Path) -> None:
    with asking(tmp_path, read_only=True) as client:
        client.broker.store.topics.configure("orders", TopicConfig(read_queue_count=4, write_queue_count=4))
        answer = client.ask_frame(send_of())
        assert (answer.code, answer.fields) == (16, EXTRAS)
        assert messages(client, "orders") == []


@pytest.mark.parametrize(("level", "queue_id", "stored"), [("2", 1, "2"), ("18", 17, "18"), ("99", 17, "18")])
def test_a_message_with_a_delay_level_waits_in_its_level(
    client: Asking, level: str, queue_id: int, stored: str
) -> None:
    answer = client.ask_frame(send_of(properties={**ONES, "DELAY": level}))
    found = read(client, answer)
    assert (found.topic, found.queue_id) == ("SCHEDULE_TOPIC_XXXX", queue_id)
    assert answer.fields["queueId"] == "1"
    assert answer.fields["queueOffset"] == str(found.queue_offset)
    assert found.properties["DELAY"] == stored
    assert (found.properties["REAL_TOPIC"], found.properties["REAL_QID"]) == ("orders", "1")
    assert "recallHandle" not in answer.fields


@pytest.mark.parametrize("level", ["0", "-1"])
def test_a_message_with_a_level_that_is_none_does_not_wait(client: Asking, level: str) -> None:
    assert read(client, client.ask_frame(send_of(properties={**ONES, "DELAY": level}))).topic == "orders"


def test_properties_are_read_as_a_broker_reads_them(client: Asking) -> None:
    given = "a\x011\x02b\x02\x02=\x01\x02a\x012\x02c\x01x\x01y\x02"
    found = read(client, client.ask_frame(send_of(properties=given)))
    assert {name: found.properties[name] for name in ("a", "c")} == {"a": "2", "c": "x\x01y"}
    assert found.properties.keys() == {"a", "c", "CLUSTER", "UNIQ_KEY", *EXTRAS}


def test_properties_of_any_language_are_kept(client: Asking) -> None:
    found = read(client, client.ask_frame(send_of(properties=text({"città": "Zürich 東京"}))))
    assert found.properties["città"] == "Zürich 東京"


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
@pytest.mark.parametrize(
    "properties",
    [
        "",
        text(ONES),
        text(ONES) + "\x02",
        text({**ONES, "WAIT": "false"}),
        "WAIT\x01true",
        "XWAIT\x01true",
        "KEYS\x01k",
    ],
)
def test_plain_messages_take_a_shorter_way_to_the_same_end(client: Asking, code: RequestCode, properties: str) -> None:
    client.ask_frame(send_of())
    plain, whole = (send_of(properties=properties, code=code, flag=7, sysFlag=0x301) for _ in range(2))
    name = "j" if code == RequestCode.SEND_MESSAGE_V2 else "reconsumeTimes"
    whole.fields[name] = "00"  # a number like 0, and unusual
    answers = [client.ask_frame(plain), client.ask_frame(whole)]
    assert answers[0].fields.keys() == answers[1].fields.keys()
    one, two = (read(client, answer) for answer in answers)
    assert (one.sys_flag, one.flag, one.born_timestamp) == (two.sys_flag, two.flag, two.born_timestamp)
    assert one.record()[48:56] == two.record()[48:56]
    assert one.tags_code == two.tags_code
    differing = {"UNIQ_KEY"} if "UNIQ_KEY" not in properties else set()
    assert all(one.properties[each] == two.properties[each] for each in one.properties.keys() - differing)
    assert one.properties.keys() == two.properties.keys()


@pytest.mark.parametrize("field", list("abcdefgh"))
def test_every_field_that_a_message_needs_is_missed(client: Asking, field: str) -> None:
    client.ask_frame(send_of())
    frame = send_of()
    del frame.fields[field]
    assert client.ask_frame(frame).code == 1
    for wrong in ("", "x", "1.5", str(2**63)):
        if field in "defgh":
            assert client.ask_frame(dataclasses.replace(frame, fields={**frame.fields, field: wrong})).code == 1
    assert len(messages(client, "orders")) == 1
