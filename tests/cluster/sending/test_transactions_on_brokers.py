"""Transactions on brokers: the half message, the decision, and the questions of brokers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rmqclient import Decision, Message, ReceivedMessage, TransactionProducer
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.sending import transactions
from rmqclient.errors import AnswerError, HandlerError, RequestTimedOut
from rmqclient.remoting.frame import ONEWAY, Frame
from rmqclient.remoting.table import RequestCode, ResponseCode, request, request_fields
from tests.cluster.sending.conftest import SEND, TWO, no, nothing, properties_of, stored
from tests.support.cluster.scripted_cluster import Script, ScriptedCluster, scripted_cluster
from tests.support.oracle.reference import ReferenceRecord, encode, format_properties
from tests.support.threads import no_thread_left

END = RequestCode.END_TRANSACTION
LONG_S = 20.0


@contextmanager
def deciding(
    script: Script | None = None, check: object = None, options: str = "timeout=20"
) -> Iterator[tuple[ScriptedCluster, TransactionProducer]]:
    with (
        scripted_cluster({SEND: lambda asked: stored(asked, 0x77), **(script or {})}, brokers=TWO) as cluster,
        TransactionProducer(f"rocketmq://{cluster.address}?{options}", group="shop", check=check) as producer,  # type: ignore[arg-type]
    ):
        yield cluster, producer


def question(group: str = "shop", body: bytes = b"half", message_id: str = "A" * 32) -> Frame:
    """Return what a broker asks: the half message as a record, under its real topic."""
    properties = {"UNIQ_KEY": message_id, "PGROUP": group, "TRAN_MSG": "true", "REAL_TOPIC": "orders", "REAL_QID": "2"}
    record = ReferenceRecord(
        topic="orders",
        queue_id=2,
        body=body,
        properties=format_properties(properties),
        queue_offset=5,
        commit_log_offset=500,
    )
    asked = request(
        RequestCode.CHECK_TRANSACTION_STATE,
        encode(record),
        tranStateTableOffset=5,
        commitLogOffset=500,
        msgId=message_id,
        transactionId=message_id,
        offsetMsgId="7F00000100002A9F00000000000001F4",
    )
    asked.flag = ONEWAY
    return asked


def test_a_half_message_says_what_it_is_and_its_decision_names_it() -> None:
    with deciding() as (cluster, producer):
        with producer.transaction(Message("orders", b"body"), immunity=60) as transaction:
            assert not cluster.asked(END)
        (half,), (end,) = cluster.asked(SEND), cluster.asked(END)
    assert properties_of(half) == {
        "UNIQ_KEY": transaction.message_id,
        "TRAN_MSG": "true",
        "PGROUP": "shop",
        "CHECK_IMMUNITY_TIME_IN_SECONDS": "60",
    }
    assert request_fields(half)["sysFlag"] == 0x4
    assert request_fields(end) == {
        "producerGroup": "shop",
        "tranStateTableOffset": 0x77,
        "commitLogOffset": 0x77,
        "commitOrRollback": 8,
        "fromTransactionCheck": False,
        "msgId": transaction.message_id,
        "topic": "orders",
    }


def test_an_exception_rolls_back() -> None:
    with deciding() as (cluster, producer):
        with pytest.raises(KeyError), producer.transaction(Message("orders", b"")):
            raise KeyError
        assert [request_fields(end)["commitOrRollback"] for end in cluster.asked(END)] == [12]


def test_a_decision_goes_to_the_broker_that_has_the_half_message() -> None:
    with deciding() as (cluster, producer):
        for _ in range(8):
            with producer.transaction(Message("orders", b"")):
                pass
        for broker in TWO:
            assert len(cluster.asked(END, broker)) == len(cluster.asked(SEND, broker)) == 4


def test_a_commit_that_the_broker_refuses_is_told_and_leaves_the_transaction_undecided() -> None:
    script = {END: no(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")}
    with deciding(script) as (_, producer):
        transaction = producer.transaction(Message("orders", b""))
        with pytest.raises(AnswerError, match="Find prepared"):
            transaction.commit()
        assert transaction.decision is None


def test_a_decision_without_an_answer_is_not_sent_again() -> None:
    with deciding({END: nothing}, options="timeout=1") as (cluster, producer):
        transaction = producer.transaction(Message("orders", b""))
        with pytest.raises(RequestTimedOut) as told:
            transaction.commit()
        assert told.value.stored
        assert len(cluster.asked(END)) == 1


def test_a_half_message_that_may_be_stored_is_not_sent_again() -> None:
    with deciding({SEND: nothing}, options="timeout=1") as (cluster, producer):
        with pytest.raises(RequestTimedOut) as told:
            producer.transaction(Message("orders", b""))
        assert told.value.stored
        assert len(cluster.asked(SEND)) == 1


def test_a_check_that_hangs_holds_neither_the_next_question_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_HANGS_AFTER_S", 0.2)
    goes_on = threading.Event()

    def check(half: ReceivedMessage) -> Decision:
        if half.body == b"first":
            goes_on.wait()
        return Decision.COMMIT

    with deciding(check=check) as (cluster, producer):
        producer.send(Message("orders", b""))
        cluster.wait_for(RequestCode.HEART_BEAT, broker="broker-a")
        for body, message_id in ((b"first", "A" * 32), (b"second", "B" * 32)):
            cluster.push(question(body=body, message_id=message_id), "broker-a")
        cluster.wait_for(END, broker="broker-a")
        assert [request_fields(end)["msgId"] for end in cluster.asked(END)] == ["B" * 32]
    goes_on.set()


# --- questions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("decision", "code"), [(Decision.COMMIT, 8), (Decision.ROLLBACK, 12)])
def test_a_question_is_answered_to_the_broker_that_asked(decision: Decision, code: int) -> None:
    seen: list[ReceivedMessage] = []

    def check(half: ReceivedMessage) -> Decision:
        seen.append(half)
        return decision

    with deciding(check=check) as (cluster, producer):
        producer.send(Message("orders", b""))
        cluster.wait_for(RequestCode.HEART_BEAT, broker="broker-b")
        assert cluster.push(question(), "broker-b") == 1
        (end,) = cluster.wait_for(END, broker="broker-b", timeout_s=LONG_S)
    assert [(half.topic, half.body, half.message_id) for half in seen] == [("orders", b"half", "A" * 32)]
    assert request_fields(end) == {
        "producerGroup": "shop",
        "tranStateTableOffset": 5,
        "commitLogOffset": 500,
        "commitOrRollback": code,
        "fromTransactionCheck": True,
        "msgId": "A" * 32,
        "transactionId": "A" * 32,
    }


def test_what_is_not_known_is_left_to_the_next_question() -> None:
    answers = iter([Decision.UNKNOWN, KeyError("broken"), "no decision", Decision.COMMIT])

    def check(_: ReceivedMessage) -> Decision:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    with deciding(check=check) as (cluster, producer):
        producer.send(Message("orders", b""))
        cluster.wait_for(RequestCode.HEART_BEAT, broker="broker-a")
        for number in range(4):
            cluster.push(question(message_id=f"{number:032X}"), "broker-a")
        (end,) = cluster.wait_for(END, timeout_s=LONG_S)
    assert request_fields(end)["msgId"] == f"{3:032X}"


def test_questions_are_answered_after_an_exception_that_nobody_expected(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known, failures = ClusterClient.call, iter([RuntimeError("can't start new thread")])

    def call(client: ClusterClient, address: str, asked: Frame, *more: Any, **options: Any) -> Frame:
        if threading.current_thread().name == "rmq-check":
            for failure in failures:
                raise failure
        return known(client, address, asked, *more, **options)

    monkeypatch.setattr(ClusterClient, "call", call)
    with deciding(check=lambda _: Decision.COMMIT) as (cluster, producer):
        producer.send(Message("orders", b""))
        cluster.wait_for(RequestCode.HEART_BEAT, broker="broker-a")
        cluster.push(question(message_id="A" * 32), "broker-a")
        cluster.push(question(message_id="B" * 32), "broker-a")
        (end,) = cluster.wait_for(END, timeout_s=LONG_S)
    assert request_fields(end)["msgId"] == "B" * 32
    assert "can't start new thread" in caplog.text


def test_questions_about_another_group_are_not_answered() -> None:
    with deciding(check=lambda _: Decision.COMMIT) as (cluster, producer):
        producer.send(Message("orders", b""))
        cluster.wait_for(RequestCode.HEART_BEAT, broker="broker-a")
        cluster.push(question(group="other"), "broker-a")
        cluster.push(question(message_id="B" * 32), "broker-a")
        (end,) = cluster.wait_for(END, timeout_s=LONG_S)
    assert request_fields(end)["msgId"] == "B" * 32


def test_a_question_about_what_was_just_decided_is_not_answered_again() -> None:
    asked: list[str] = []

    def check(half: ReceivedMessage) -> Decision:
        asked.append(half.message_id)
        return Decision.COMMIT

    with deciding(check=check) as (cluster, producer):
        with producer.transaction(Message("orders", b"")) as transaction:
            pass
        cluster.push(question(message_id=transaction.message_id), "broker-a")
        cluster.push(question(message_id="B" * 32), "broker-a")
        cluster.wait_for(END, 2, timeout_s=LONG_S)
    assert asked == ["B" * 32]


def test_closing_waits_for_the_check_that_runs_and_asks_no_more() -> None:
    begun, release = threading.Event(), threading.Event()

    def check(_: ReceivedMessage) -> Decision:
        begun.set()
        assert release.wait(LONG_S)
        return Decision.COMMIT

    with no_thread_left("rmq-check"), deciding(check=check) as (cluster, producer):
        producer.send(Message("orders", b""))
        cluster.wait_for(RequestCode.HEART_BEAT, broker="broker-a")
        cluster.push(question(), "broker-a")
        assert begun.wait(LONG_S)
        closing = threading.Thread(target=producer.close)
        closing.start()
        release.set()
        closing.join(LONG_S)
        assert len(cluster.asked(END)) == 1


def test_without_execute_it_says_what_to_do() -> None:
    with deciding() as (_, producer), pytest.raises(HandlerError, match="execute="):
        producer.send_in_transaction(Message("orders", b""))
