"""Waits: messages that ask to be delivered later, and taking them back."""

from __future__ import annotations

import time

import pytest

from rmqclient.broker.sending.waits import RecallHandle, Wait, wait_of
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from tests.broker.asking import Asking
from tests.broker.sending.sends import ONES, UNIQ_KEY, read, send_of

NOW = 1_795_333_100_000
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("properties", "wait"),
    [
        ({}, Wait()),
        ({"DELAY": "3"}, Wait(level=3)),
        ({"DELAY": "19"}, Wait(level=18)),
        ({"DELAY": "3", "TIMER_DELAY_SEC": "5"}, Wait(level=3)),
        ({"DELAY": "0", "TIMER_DELAY_SEC": "5"}, Wait(due_ms=NOW + 5_000)),
        ({"TIMER_DELAY_SEC": "5", "TIMER_DELIVER_MS": "1"}, Wait(due_ms=NOW + 5_000)),
        ({"TIMER_DELAY_MS": "5"}, Wait(due_ms=NOW + 5)),
        ({"TIMER_DELIVER_MS": str(NOW + 7)}, Wait(due_ms=NOW + 7)),
        ({"TIMER_DELIVER_MS": str(NOW + 400 * DAY_MS)}, Wait(due_ms=NOW + 400 * DAY_MS)),
        ({"TIMER_DELIVER_MS": str(NOW)}, Wait()),
        ({"TIMER_DELAY_SEC": "-5"}, Wait()),
    ],
)
def test_a_message_asks_to_wait_by_its_properties(properties: dict[str, str], wait: Wait) -> None:
    assert wait_of(properties, NOW) == wait


@pytest.mark.parametrize("text", ["soon", "1.5", "", " 1", "9" * 30, "٣"])
def test_a_time_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(AnswerError) as raised:
        wait_of({"TIMER_DELAY_SEC": text}, NOW)
    assert raised.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_time_of_more_than_ten_years_is_refused() -> None:
    with pytest.raises(AnswerError) as raised:
        wait_of({"TIMER_DELAY_SEC": "400000000"}, NOW)
    assert raised.value.code == ResponseCode.MESSAGE_ILLEGAL


def later(client: Asking) -> Frame:
    return client.ask_frame(send_of(properties={**ONES, "TIMER_DELAY_SEC": "3600"}))


def recall(client: Asking, handle: str, topic: str = "orders") -> Frame:
    return client.ask(RequestCode.RECALL_MESSAGE, producerGroup="makers", topic=topic, recallHandle=handle)


def test_a_message_waits_for_its_time_and_the_answer_has_what_recalls_it(client: Asking) -> None:
    before_ms = time.time_ns() // 1_000_000
    answer = later(client)
    found = read(client, answer)
    due_ms = int(found.properties["TIMER_OUT_MS"])
    assert found.topic == "rmq_sys_wheel_timer"
    assert before_ms + 3_600_000 <= due_ms <= time.time_ns() // 1_000_000 + 3_600_000
    assert RecallHandle.of(answer.fields["recallHandle"]) == ("orders", "broker-a", due_ms, UNIQ_KEY)
    assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("1", "0")


def test_a_message_that_waits_can_be_recalled_once(client: Asking) -> None:
    handle = later(client).fields["recallHandle"]
    assert [waiting.message_id for waiting in client.broker.store.timer.pending()] == [UNIQ_KEY]
    answer = recall(client, handle)
    assert (answer.code, answer.fields) == (0, {"msgId": UNIQ_KEY})
    assert list(client.broker.store.timer.pending()) == []
    again = recall(client, handle)
    assert (again.code, again.remark) == (604, f"recall failed, message {UNIQ_KEY} does not wait for its time")


def test_a_message_that_waits_for_another_topic_is_not_recalled(client: Asking) -> None:
    handle = RecallHandle.of(later(client).fields["recallHandle"])
    client.ask_frame(send_of(topic="mine"))
    refused = recall(client, handle._replace(topic="mine").text(), topic="mine")
    assert (refused.code, refused.remark) == (604, f"recall failed, message {UNIQ_KEY} does not wait for its time")
    assert [waiting.topic for waiting in client.broker.store.timer.pending()] == ["orders"]


def test_a_handle_of_something_else_recalls_nothing(client: Asking) -> None:
    due_ms = time.time_ns() // 1_000_000 + 3_600_000
    later(client)
    client.ask_frame(send_of(topic="other"))
    for handle, remark in (
        ("", "recall handle is invalid"),
        ("?", "recall handle is invalid"),
        ("djEgb3JkZXJz", "recall handle is invalid"),
        (RecallHandle("orders", "broker-a", due_ms, UNIQ_KEY).text()[:-4], "recall failed, message"),
        (RecallHandle("other", "broker-a", due_ms, UNIQ_KEY).text(), "recall failed, topic not match"),
        (RecallHandle("orders", "b", due_ms, UNIQ_KEY).text(), "recall failed, broker service not available"),
        (RecallHandle("orders", "broker-a", 5, UNIQ_KEY).text(), "recall failed, timestamp invalid"),
        (RecallHandle("orders", "broker-a", due_ms, "f" * 32).text(), f"recall failed, message {'f' * 32} does not"),
    ):
        answer = recall(client, handle)
        assert answer.code == 604
        assert (answer.remark or "").startswith(remark)
    assert recall(client, "x", topic="unknown").code == 17
    assert [waiting.message_id for waiting in client.broker.store.timer.pending()] == [UNIQ_KEY]
