"""Retries: messages that remote members give back, and what a group's local members see of them."""

from __future__ import annotations

from typing import Any

import pytest

from rmqclient.failures.dead_letters import Selection, select
from rmqclient.local.backend import local_backend
from rmqclient.remoting.bodies import GroupConfig
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import ReceivedMessage
from tests.broker.asking import Asking
from tests.broker.sending.sends import ONES, UNIQ_KEY, messages, only, read, send_of
from tests.support.stores import appender_of


def sent(client: Asking, **fields: Any) -> ReceivedMessage:
    return read(client, client.ask_frame(send_of(**fields)))


def give_back(client: Asking, message: ReceivedMessage, level: int = 0, **fields: Any) -> Frame:
    return client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        **{"offset": message.commit_log_offset, "group": "billing", "delayLevel": level, **fields},
    )


def waiting(client: Asking) -> ReceivedMessage:
    return max(messages(client, "SCHEDULE_TOPIC_XXXX"), key=lambda message: message.commit_log_offset)


def test_a_message_that_is_given_back_waits_for_its_next_attempt(client: Asking) -> None:
    first = sent(client, flag=7, sysFlag=0x301)
    answer = give_back(client, first)
    assert (answer.code, answer.fields) == (0, {})
    copy = waiting(client)
    assert (copy.queue_id, copy.reconsume_times) == (2, 1)
    assert (copy.stored_body, copy.flag, copy.sys_flag, copy.message_id) == (b"hello", 7, 0x301, UNIQ_KEY)
    assert copy.born_timestamp == first.born_timestamp
    expected = {
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": first.offset_message_id,
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%billing",
        "REAL_QID": "0",
        "KEYS": "k1 k2",
    }
    assert {name: copy.properties[name] for name in expected} == expected
    assert len(client.broker.topics.queues("%RETRY%billing")) == 1


def test_the_level_is_the_one_that_is_asked_for_or_grows_with_the_attempts(client: Asking) -> None:
    for attempts, asked, level in ((0, 0, 3), (4, 0, 7), (15, 0, 18), (0, 1, 1), (4, 18, 18), (4, 99, 18)):
        give_back(client, sent(client, reconsumeTimes=attempts), asked)
        assert waiting(client).properties["DELAY"] == str(level)
        assert waiting(client).queue_id == level - 1


@pytest.mark.parametrize(
    ("attempts", "level", "most", "is_dead"),
    [
        (15, 0, None, False),
        (16, 0, None, True),
        (0, -1, None, True),
        (0, 0, 0, True),
        (2, 0, 3, False),
        (3, 0, 3, True),
        (16, 0, 20, False),
    ],
)
def test_a_message_that_was_tried_often_enough_becomes_a_dead_letter(
    client: Asking, attempts: int, level: int, most: int | None, is_dead: bool
) -> None:
    first = sent(client, reconsumeTimes=attempts)
    assert give_back(client, first, level, maxReconsumeTimes=most).code == 0
    letters = messages(client, "%DLQ%billing")
    assert bool(letters) is is_dead
    assert bool(messages(client, "SCHEDULE_TOPIC_XXXX")) is not is_dead
    for letter in letters:
        assert letter.reconsume_times == attempts + 1
        assert letter.properties["DELAY"] == "0"
        assert letter.properties["DLQ_ORIGIN_TOPIC"] == letter.properties["RETRY_TOPIC"] == "orders"
        assert letter.properties["DLQ_ORIGIN_MESSAGE_ID"] == first.offset_message_id


def test_clients_before_3_4_9_have_the_attempts_of_the_group(client: Asking) -> None:
    frame_fields: dict[str, Any] = {"offset": sent(client).commit_log_offset, "group": "billing", "delayLevel": 0}
    client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, version=120, maxReconsumeTimes=0, **frame_fields)
    assert messages(client, "%DLQ%billing") == []
    client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, version=121, maxReconsumeTimes=0, **frame_fields)
    assert len(messages(client, "%DLQ%billing")) == 1


def test_an_administrator_says_how_often_a_group_tries(client: Asking) -> None:
    client.broker.group_settings.change(GroupConfig("billing", most_retries=1))
    give_back(client, sent(client, reconsumeTimes=1))
    assert len(messages(client, "%DLQ%billing")) == 1
    client.broker.group_settings.change(GroupConfig("forgetful", retry_queues=0))
    assert give_back(client, sent(client), group="forgetful").code == 0
    assert messages(client, "SCHEDULE_TOPIC_XXXX") == []


def test_the_second_attempt_keeps_where_the_message_failed_first(client: Asking) -> None:
    first = sent(client)
    give_back(client, first)
    give_back(client, waiting(client))
    assert waiting(client).reconsume_times == 2
    assert waiting(client).properties["RETRY_TOPIC"] == "orders"
    assert waiting(client).properties["ORIGIN_MESSAGE_ID"] == first.offset_message_id


def test_dead_letters_of_remote_members_are_those_of_the_group(client: Asking) -> None:
    give_back(client, sent(client, reconsumeTimes=16))
    backend = local_backend(client.broker.store)
    (letter,) = select(backend, "billing", Selection())
    assert (letter.topic, letter.attempts, letter.message.message_id) == ("orders", 17, UNIQ_KEY)


@pytest.mark.guarantee("G106")
def test_a_message_without_room_for_a_retry_is_a_dead_letter_at_once(client: Asking) -> None:
    first = sent(client)
    full = {"p": "x" * 32_700}  # as a broker stores it
    copy = appender_of(client.broker.store).append_copy(first, "orders", 0, full, reconsume_times=0)
    assert give_back(client, client.broker.store.messages.read(copy.commit_log_offset)).code == 0
    (letter,) = messages(client, "%DLQ%billing")
    assert (letter.body, letter.properties["DLQ_ORIGIN_TOPIC"]) == (first.body, "orders")


@pytest.mark.parametrize("offset", [-1, 999_999_999, 2**63 - 1, 7])
def test_an_offset_where_no_message_begins_is_refused(client: Asking, offset: int) -> None:
    sent(client)
    answer = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, offset=offset, group="billing", delayLevel=0)
    assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")


def test_bytes_in_a_body_that_look_like_a_record_are_no_message(client: Asking) -> None:
    """Given a message whose body is a record that names its own place in the log."""
    model = sent(client)
    begin = client.broker.store.state.published_to
    forged = bytearray(model.record())
    forged[28:36] = (begin + 88).to_bytes(8, "big")
    forged[12:16] = (0).to_bytes(4, "big")
    body = bytes(forged[:-20])  # without the CRC, as a 4.9 broker writes it
    body = len(body).to_bytes(4, "big") + body[4:]
    size_at = 84 + 4 + len(b"hello") + 1 + len(b"orders")
    body = body[:size_at] + (len(body) - size_at - 2).to_bytes(2, "big") + body[size_at + 2 :]
    carrier = sent(client, body=body)
    assert carrier.commit_log_offset == begin
    assert client.broker.store.messages.read(begin + 88).body == b"hello"
    answer = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, offset=begin + 88, group="billing", delayLevel=0)
    assert (answer.code, answer.remark) == (1, f"look message by offset failed, {begin + 88}")


@pytest.mark.parametrize("group", ["", "bad name", "../x", "g" * 256])
def test_a_group_that_cannot_be_is_refused(client: Asking, group: str) -> None:
    assert give_back(client, sent(client), group=group).code == 26


def test_a_failed_message_that_is_sent_to_its_retry_topic_is_counted_there(client: Asking) -> None:
    """A client sends by itself what it could not give back. [DefaultMQPushConsumerImpl.sendMessageBack]"""
    properties = {
        **ONES,
        "RETRY_TOPIC": "orders",
        "DELAY": "4",
        "ORIGIN_MESSAGE_ID": "7F0000010000269400000000000000CD",
    }
    given: dict[str, Any] = {"topic": "%RETRY%billing", "queueId": 0, "properties": properties, "maxReconsumeTimes": 2}
    client.ask_frame(send_of(**given, reconsumeTimes=1))
    assert waiting(client).properties["REAL_TOPIC"] == "%RETRY%billing"
    answer = client.ask_frame(send_of(**given, reconsumeTimes=2))
    letter = only(client, "%DLQ%billing")
    assert (answer.code, answer.fields["msgId"]) == (0, letter.offset_message_id)
    assert letter.properties["DELAY"] == "0"
    assert letter.properties["DLQ_ORIGIN_TOPIC"] == "orders"
    assert len(messages(client, "SCHEDULE_TOPIC_XXXX")) == 1
