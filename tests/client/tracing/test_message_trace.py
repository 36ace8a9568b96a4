"""RocketMQ's message trace: records of what was sent, handled and decided, and that they cost nobody a message."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest

from rmqclient import App, Batch, ConsumerConfig, Decision, Message, Producer, TransactionProducer
from rmqclient.admin.life import life_of
from rmqclient.backend.backend import Backend
from rmqclient.message import ReceivedMessage
from rmqclient.opening import open_backend
from rmqclient.store import MessageStore
from rmqclient.store.errors import StoreBusy
from rmqclient.store.log.query import END_OF_TIME
from rmqclient.tracing import dispatcher
from rmqclient.tracing.message_trace import MessageTrace
from rmqclient.tracing.records import (
    TRACE_TOPIC,
    EndTransaction,
    Kind,
    Outcome,
    Pub,
    Record,
    SubAfter,
    SubBefore,
    decoded,
)
from tests.client.conftest import NOWHERE, SOON, consuming, wait_for

TRACED = ConsumerConfig(message_trace=True, local_retry_ms=20)


def records(backend: Backend) -> list[Record]:
    """Return every record that was written, in the order of the trace topic."""
    if TRACE_TOPIC not in backend.topics.names():
        return []
    (queue,) = backend.topics.queues(TRACE_TOPIC)
    span = backend.queues.span(queue)
    found = (backend.queues.message_at(queue, offset) for offset in range(span.min_offset, span.max_offset))
    return list(itertools.chain.from_iterable(decoded(message.body.decode()) for message in found))


def trace_of(producer: Producer) -> MessageTrace:
    (found,) = producer._observers
    assert isinstance(found, MessageTrace)
    return found


@pytest.mark.guarantee("G54")
def test_a_message_is_traced_from_its_send_through_each_attempt(backend: Backend) -> None:
    app = App(NOWHERE)

    @app.handler("orders", group="billing", retry=SOON)
    def bill(message: ReceivedMessage) -> None:
        if message.delivery_attempt == 1:
            raise ValueError("not yet")

    # When a message is sent, fails once and is handled, with both sides traced
    with consuming(backend, app, TRACED), Producer(backend, group="shop", message_trace=True) as producer:
        sent = producer.send(Message("orders", {"total": 12}, tags="paid", keys=["A-17"]))
        wait_for(lambda: len(records(backend)) == 5, "five records")

    # Then the records say so
    found = records(backend)
    (pub,) = [each for each in found if isinstance(each, Pub)]
    assert (pub.group, pub.topic, pub.message_id, pub.tags, pub.keys) == (
        "shop", "orders", sent.message_id, "paid", ("A-17",)
    )  # fmt: skip
    assert (pub.body_bytes, pub.kind, pub.success) == (len(b'{"total":12}'), Kind.NORMAL, True)
    begun = [each for each in found if isinstance(each, SubBefore)]
    ended = [each for each in found if isinstance(each, SubAfter)]
    assert [each.retries for each in begun] == [0, 1]
    assert [(each.success, each.outcome) for each in ended] == [(False, Outcome.EXCEPTION), (True, Outcome.SUCCESS)]
    assert [each.request_id for each in begun] == [each.request_id for each in ended]
    assert {(each.group, each.message_id, each.keys) for each in begun + ended} == {
        ("billing", sent.message_id, ("A-17",))
    }

    # And they are found by the id and by the key
    for key in (sent.message_id, "A-17"):
        assert len(backend.messages.by_key(TRACE_TOPIC, key, 0, END_OF_TIME, 64)) >= 2  # one of each side, at least

    # And the life of the message tells them
    steps = life_of(backend, backend.queues.message_at(sent.queue, sent.queue_offset))
    told = [step.event for step in steps if step.event in {"sent", "handled", "not handled"}]
    assert told == ["sent", "not handled", "handled"]


def test_each_message_of_a_batch_has_its_records(backend: Backend) -> None:
    app = App(NOWHERE)
    app.handler("orders", group="billing", batch=Batch(2, linger=5.0))(lambda _: None)

    with consuming(backend, app, TRACED), Producer(backend, message_trace=True) as producer:
        sent = producer.send_batch([Message("orders", b"1"), Message("orders", b"2")])
        wait_for(lambda: len(records(backend)) == 6, "six records")

    for kind in (Pub, SubBefore, SubAfter):
        ids = [each.message_id for each in records(backend) if isinstance(each, kind)]
        assert ids == [each.message_id for each in sent]


def test_transactions_are_traced_with_their_decisions(store: MessageStore) -> None:
    backend = open_backend(store)
    with TransactionProducer(backend, group="shop", message_trace=True) as producer:
        committed = producer.transaction(Message("orders", b"1", tags="paid"))
        committed.commit()
        rolled_back = producer.transaction(Message("orders", b"2"))
        rolled_back.rollback()

    pubs = [each for each in records(backend) if isinstance(each, Pub)]
    ends = [each for each in records(backend) if isinstance(each, EndTransaction)]
    assert [each.kind for each in pubs] == [Kind.HALF, Kind.HALF]
    assert [(each.message_id, each.topic, each.tags, each.commit, each.from_check) for each in ends] == [
        (committed.message_id, "orders", "paid", True, False),
        (rolled_back.message_id, "orders", None, False, False),
    ]


def test_a_decision_after_a_check_is_traced_as_such(store: MessageStore) -> None:
    backend = open_backend(store)
    producer = TransactionProducer(backend, group="shop", check=lambda _: Decision.COMMIT, message_trace=True)
    with producer:
        half = producer.transaction(Message("orders", b"1"))
        message = backend.messages.by_id(half.message_id)
        assert message is not None
        assert producer._ask(message) is True

    (end,) = [each for each in records(backend) if isinstance(each, EndTransaction)]
    assert (end.message_id, end.commit, end.from_check) == (half.message_id, True, True)


@pytest.mark.guarantee("G54")
def test_records_that_do_not_fit_are_dropped_and_counted_and_no_send_waits(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a trace topic that cannot be written to yet
    stuck = threading.Event()
    backend = open_backend(store)
    producer = Producer(backend, message_trace=True)
    make_sender = backend.producers.sender

    def stuck_sender(*given: Any, **named: Any) -> object:
        stuck.wait(120)
        return make_sender(*given, **named)

    trace = trace_of(producer)
    monkeypatch.setattr(trace._dispatcher._backend.producers, "sender", stuck_sender)

    # When more messages are sent than records may wait
    begun = time.monotonic()
    results = [producer.send(Message("orders", b"x")) for _ in range(dispatcher.MOST_WAITING + 500)]
    assert time.monotonic() - begun < 100

    # Then all are stored, the others are counted, and what fits comes later
    assert len({each.message_id for each in results}) == dispatcher.MOST_WAITING + 500
    assert trace.dropped > 0
    stuck.set()
    wait_for(lambda: len(records(backend)) + trace.dropped == len(results), "every record, or its count")
    producer.close()


@pytest.mark.guarantee("G54")
def test_a_trace_that_cannot_be_stored_makes_no_send_fail(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(store, message_trace=True)
    trace = trace_of(producer)

    def refuse(*_: object, **__: object) -> object:
        raise StoreBusy("planted")

    monkeypatch.setattr(trace._dispatcher, "_make_topic", refuse)
    producer.send(Message("orders", b"x"))
    wait_for(lambda: trace.dropped == 1, "the count")
    producer.close()
    assert "1 records dropped so far: StoreBusy: planted" in caplog.text


def test_what_waits_is_sent_when_the_producer_is_closed(store: MessageStore) -> None:
    with Producer(store, message_trace=True) as producer:
        for number in range(500):
            producer.send(Message("orders", b"x", keys=[f"key-{number}" * 20]))
    backend = open_backend(store)
    assert len(records(backend)) == 500
    assert backend.queues.span(backend.topics.queues(TRACE_TOPIC)[0]).max_offset < 50


def test_without_the_option_there_is_no_trace_topic(store: MessageStore) -> None:
    with Producer(store) as producer:
        producer.send(Message("orders", b"x"))
    assert TRACE_TOPIC not in open_backend(store).topics.names()


def test_records_of_other_clients_are_read_and_damage_is_passed_over() -> None:
    # Given what Java's 5.x writes, with a host behind it; a record of an old client; and damage
    half = ["Pub", "1795333172404", "DefaultRegion", "shop", "orders", "ID", "null", "k1 k2", "10.0.0.1:10911"]
    new = "\x01".join([*half, "4", "26", "0", "OFFSET", "true", "10.0.0.9"])
    old = "SubAfter\x01request\x01ID\x013\x01true\x01null"
    text = f"{new}\x02{old}\x02Pub\x01damaged\x02Other\x01x\x02"

    pub, after = decoded(text)
    assert isinstance(pub, Pub)
    assert (pub.tags, pub.keys, pub.success, pub.offset_message_id) == (None, ("k1", "k2"), True, "OFFSET")
    assert after == SubAfter(0, "", "request", "ID", (), 3, success=True, outcome=0)


@pytest.mark.guarantee("G54")
def test_a_record_that_cannot_be_stored_takes_none_of_its_batch_along(store: MessageStore) -> None:
    # Given records of messages of another client, one of which has an id that no key can be
    backend = open_backend(store)
    sending = dispatcher.Dispatcher(backend, "billing")
    given = [SubBefore(1, "billing", "request", name, 0, ()) for name in ("first", "an id", "last")]

    # When they are sent together, then only that one is dropped, and counted
    for record in given:
        sending.put(record)
    sending.close()
    assert {each.message_id for each in records(backend)} == {"first", "last"}
    assert sending.dropped == 1
