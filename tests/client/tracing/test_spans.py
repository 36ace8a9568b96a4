"""Spans of OpenTelemetry: of sends, of calls of handlers, and how they hang together."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import subprocess
import sys
import threading

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.trace import SpanKind, StatusCode

from rmqclient import App, Batch, Message, Producer, PullConsumer, RetryPolicy, Suspend, TransactionProducer, tracing
from rmqclient.backend.backend import Backend
from rmqclient.databases.outbox import Outbox
from rmqclient.databases.relay import Relay
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageStore
from rmqclient.store.errors import MessageRejected
from rmqclient.tracing.spans import Spans
from tests.client.conftest import NOWHERE, SOON, consuming, wait_for
from tests.client.tracing.conftest import Collected
from tests.support.cluster.keeping_cluster import keeping_cluster

CHAIN = ("checkout", "create orders", "send orders", "process orders")
"""The spans of a message that goes through an outbox."""


@pytest.mark.guarantee("G53")
def test_a_handler_works_in_a_child_of_the_span_that_sent_its_message(backend: Backend, spans: Collected) -> None:
    # Given a handler that begins a span of its own
    app = App(NOWHERE)

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        with spans.tracer.start_as_current_span("charge"):
            pass

    # When a message is sent inside a span of the application
    with consuming(backend, app), Producer(backend, group="shop") as producer:
        with spans.tracer.start_as_current_span("checkout"):
            sent = producer.send(Message("orders", b"x", tags="paid", keys=["A-17"]))
        wait_for(lambda: spans.named("process orders"), "the span of the handler")

    # Then all four are one trace, each the child of the one before
    chain = [spans.one(name) for name in ("checkout", "send orders", "process orders", "charge")]
    for parent, child in itertools.pairwise(chain):
        assert child.parent.span_id == parent.context.span_id, child.name
    send, process = chain[1:3]
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    common = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": str(sent.queue.queue_id),
        "messaging.message.id": sent.message_id,
        "messaging.rocketmq.namespace": backend.namespace,
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("A-17",),
    }
    assert dict(send.attributes) == {
        **common,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.rocketmq.message.type": "normal",
    }
    assert dict(process.attributes) == {
        **common,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "billing",
        "messaging.rocketmq.consumption_model": "clustering",
        "rmq.delivery_attempt": 1,
    }


@pytest.mark.guarantee("G53")
def test_the_span_of_a_retry_links_to_the_span_that_sent_the_message(backend: Backend, spans: Collected) -> None:
    app = App(NOWHERE)

    @app.handler("orders", group="billing", retry=SOON)
    def bill(message: ReceivedMessage) -> None:
        if message.delivery_attempt == 1:
            raise ValueError("not yet")

    with consuming(backend, app), Producer(backend) as producer:
        producer.send(Message("orders", b"x"))
        wait_for(lambda: len(spans.named("process orders")) == 2, "the second attempt")

    sent, (failed, again) = spans.one("send orders"), spans.named("process orders")
    assert failed.attributes["error.type"] == "ValueError"
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.events[0].attributes["exception.message"] == "not yet"
    assert again.parent is None
    assert [link.context.span_id for link in again.links] == [sent.context.span_id]
    assert again.attributes["rmq.delivery_attempt"] == 2
    assert again.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("order", [None, "queue"])
def test_the_span_of_a_batch_links_to_every_span_that_sent_a_message_of_it(
    backend: Backend, spans: Collected, order: str | None, kind: str
) -> None:
    seen: list[int] = []
    app = App(NOWHERE)

    def look(messages: list[ReceivedMessage]) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    async def look_async(messages: list[ReceivedMessage]) -> None:
        await asyncio.sleep(0)
        look(messages)

    function = look if kind == "plain" else look_async
    app.handler("orders", group="billing", order=order, batch=Batch(3, linger=5.0))(function)  # type: ignore[arg-type]

    with Producer(backend) as producer:
        for body in (b"1", b"2", b"3"):
            producer.send(Message("orders", body), sharding_key="one queue")
    with consuming(backend, app):
        wait_for(lambda: spans.named("process orders"), "the span of the batch")

    process = spans.one("process orders")
    assert process.attributes["messaging.batch.message_count"] == 3
    assert {link.context.span_id for link in process.links} == {
        span.context.span_id for span in spans.named("send orders")
    }
    assert process.parent is None
    assert seen == [process.context.span_id]


def test_a_batch_is_one_send_whose_context_is_in_each_message(backend: Backend, spans: Collected) -> None:
    found: list[str] = []
    app = App(NOWHERE)
    app.handler("orders", group="billing")(lambda message: found.append(message.properties["traceparent"]))

    with consuming(backend, app), Producer(backend) as producer:
        producer.send_batch([Message("orders", b"1"), Message("orders", b"2")])
        wait_for(lambda: len(found) == 2, "both messages")

    sent = spans.one("send orders")
    assert sent.attributes["messaging.batch.message_count"] == 2
    assert {text.split("-")[2] for text in found} == {f"{sent.context.span_id:016x}"}


@pytest.mark.parametrize("order", [None, "queue", "key"])
def test_coroutines_side_by_side_each_have_their_own_span(
    backend: Backend, spans: Collected, order: str | None
) -> None:
    own: dict[str, int] = {}
    app = App(NOWHERE)

    @app.handler("orders", group="billing", order=order)  # type: ignore[arg-type]
    async def bill(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        own[message.message_id] = trace.get_current_span().get_span_context().span_id

    with Producer(backend) as producer:
        for number in range(10):
            producer.send(Message("orders", b"x"), sharding_key=str(number))
    with consuming(backend, app):
        wait_for(lambda: len(spans.named("process orders")) == 10, "ten spans")

    assert own == {
        span.attributes["messaging.message.id"]: span.context.span_id for span in spans.named("process orders")
    }


def test_a_pause_that_the_handler_asks_for_is_no_error(backend: Backend, spans: Collected) -> None:
    app = App(NOWHERE)

    @app.handler("orders", group="billing", order="queue")
    def bill(message: ReceivedMessage) -> None:
        if message.delivery_attempt == 1:
            raise Suspend(0.01)

    with consuming(backend, app), Producer(backend) as producer:
        producer.send(Message("orders", b"x"))
        wait_for(lambda: len(spans.named("process orders")) == 2, "the second attempt")

    first = spans.named("process orders")[0]
    assert first.status.status_code is StatusCode.UNSET
    assert "error.type" not in first.attributes
    assert [event.name for event in first.events] == ["rmq.suspended"]


def test_a_send_that_fails_is_an_error_and_a_thing_that_is_no_message_is_refused_as_ever(
    store: MessageStore, spans: Collected
) -> None:
    with Producer(store) as producer:
        with pytest.raises(MessageRejected):
            producer.send(Message("orders", b"x", keys=["two words"]))
        with pytest.raises(TypeError):
            producer.send("orders")  # type: ignore[call-overload]
        assert producer.send_batch([]) == []

    assert spans.one("send orders").attributes["error.type"] == "MessageRejected"


def test_each_way_to_send_has_a_span_that_says_which(store: MessageStore, spans: Collected) -> None:
    with Producer(store, write_buffer_bytes=1 << 20) as producer:
        producer.send(Message("delayed", b"x"), delay_level=3)
        producer.send(Message("due", b"x"), delay=3600)
        producer.send(Message("keyed", b"x"), "A-17")
        producer.send_async(Message("later", b"x")).result()
        first = producer.send_once(Message("once", b"x"), "A-17")
        producer.send_buffered(Message("buffered", b"x"))
    with TransactionProducer(store, group="shop") as transactions:
        transactions.transaction(Message("halves", b"x")).commit()

    assert spans.one("send delayed").attributes["messaging.rocketmq.message.delay_time_level"] == 3
    assert spans.one("send due").attributes["messaging.rocketmq.message.delivery_timestamp"] > 0
    assert spans.one("send keyed").attributes["messaging.rocketmq.message.group"] == "A-17"
    assert spans.one("send later").attributes["messaging.message.id"]
    assert spans.one("send once").attributes["messaging.message.id"] == first.message_id
    assert spans.one("create buffered").attributes["messaging.operation.type"] == "create"
    types = {name: spans.one(f"send {name}").attributes["messaging.rocketmq.message.type"] for name in ("due", "keyed")}
    assert types == {"due": "delay", "keyed": "fifo"}
    assert spans.one("send halves").attributes["messaging.rocketmq.message.type"] == "transaction"


def test_a_message_that_has_a_context_keeps_it_and_its_send_links_to_it(store: MessageStore, spans: Collected) -> None:
    made = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with Producer(store) as producer:
        sent = producer.send(Message("orders", b"x", properties={"traceparent": made}))

    span = spans.one("send orders")
    assert span.kind is SpanKind.CLIENT
    assert [f"{link.context.span_id:016x}" for link in span.links] == ["b7ad6b7169203331"]
    assert store.messages.at(sent.queue, sent.queue_offset).properties["traceparent"] == made


def test_baggage_reaches_the_handler(backend: Backend, spans: Collected) -> None:
    found: list[object] = []
    app = App(NOWHERE)
    app.handler("orders", group="billing")(lambda _: found.append(baggage.get_baggage("tenant")))

    with consuming(backend, app), Producer(backend) as producer:
        token = context.attach(baggage.set_baggage("tenant", "acme"))
        producer.send(Message("orders", b"x"))
        context.detach(token)
        wait_for(lambda: found, "the message")
    assert found == ["acme"]


def test_with_links_only_a_handler_begins_a_trace_of_its_own(backend: Backend, spans: Collected) -> None:
    tracing.instrument(spans.provider, links_only=True)
    app = App(NOWHERE)
    app.handler("orders", group="billing")(lambda _: None)

    with consuming(backend, app), Producer(backend) as producer:
        producer.send(Message("orders", b"x"))
        wait_for(lambda: spans.named("process orders"), "the span of the handler")

    process, sent = spans.one("process orders"), spans.one("send orders")
    assert process.context.trace_id != sent.context.trace_id
    assert [link.context.span_id for link in process.links] == [sent.context.span_id]


def test_it_is_the_same_on_a_cluster(spans: Collected) -> None:
    with keeping_cluster(topics={"orders": 2}) as kept:
        url = f"rocketmq://{kept.cluster.address}"
        handled = threading.Event()
        app = App(url)

        @app.handler("orders", group="billing", retry=RetryPolicy(delay_levels=(1,)))
        def bill(message: ReceivedMessage) -> None:
            if message.delivery_attempt == 1:
                raise ValueError("not yet")
            handled.set()

        with consuming(url, app), Producer(url) as producer:
            producer.send(Message("orders", b"x"))
            assert handled.wait(30)
            wait_for(lambda: len(spans.named("process orders")) == 2, "the span of the second attempt")

    sent, (failed, again) = spans.one("send orders"), spans.named("process orders")
    assert failed.parent.span_id == sent.context.span_id
    assert [link.context.span_id for link in again.links] == [sent.context.span_id]


def test_an_observer_that_fails_makes_no_message_fail(
    store: MessageStore, spans: Collected, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Given spans that cannot be begun
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(spans.provider.get_tracer("rmqclient").__class__, "start_span", fail)
    handled: list[bytes] = []
    app = App(NOWHERE)
    app.handler("orders", group="billing")(lambda message: handled.append(message.body))

    with consuming(store, app) as consumer, Producer(store) as producer:
        producer.send(Message("orders", b"x"))
        wait_for(lambda: handled, "the message")
        assert consumer.counters.failed == 0
    assert handled == [b"x"]
    assert {"a send to topic orders is not traced", "group billing: a call of its handler is not traced"} <= set(
        caplog.messages
    )


def test_nothing_of_opentelemetry_is_imported_and_nothing_is_wrapped_without_it() -> None:
    script = """if True:
        import sys, tempfile
        from rmqclient import Producer
        from rmqclient.local.sender import LocalSender
        import rmqclient.consuming.push_consumer
        with Producer(tempfile.mkdtemp()) as producer:
            assert type(producer._sender) is LocalSender, producer._sender
        assert not [name for name in sys.modules if name.startswith("opentelemetry")]
    """
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("way", ["pull", "messages"])
def test_a_pull_that_brings_messages_is_a_span_with_a_link_to_the_send_of_each(
    backend: Backend, spans: Collected, way: str
) -> None:
    with Producer(backend) as producer, PullConsumer(backend, group="reports") as consumer:
        producer.create_topic("orders", 1)
        for body in (b"1", b"2"):
            producer.send(Message("orders", body))
        if way == "pull":
            (queue,) = consumer.queues("orders")
            assert len(consumer.pull(queue, 0).messages) == 2
            assert not consumer.pull(queue, 2).messages
        else:
            assert len([*consumer.messages("orders", wait=0)]) == 2

    received, sent = spans.one("receive orders"), spans.named("send orders")
    assert received.kind is SpanKind.CLIENT
    assert [link.context.span_id for link in received.links] == [span.context.span_id for span in sent]
    assert received.start_time <= received.end_time
    assert dict(received.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.rocketmq.namespace": backend.namespace,
        "messaging.consumer.group.name": "reports",
        "messaging.batch.message_count": 2,
    }


def test_the_context_of_a_database_transaction_goes_through_the_outbox_to_the_handler(
    backend: Backend, spans: Collected
) -> None:
    app, outbox = App(NOWHERE), Outbox()

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        """Do nothing."""

    connection = sqlite3.connect(":memory:")
    outbox.create(connection)
    with spans.tracer.start_as_current_span("checkout"), connection:
        connection.execute("CREATE TABLE sold (id INTEGER)")
        connection.execute("INSERT INTO sold VALUES (1)")
        outbox.add(connection, Message("orders", b"x", keys=["A-17"]))
    with consuming(backend, app), Relay(backend, outbox, lambda: connection) as relay:
        assert relay.send() == 1
        wait_for(lambda: spans.named("process orders"), "the span of the handler")

    checkout, create, send, process = (spans.one(name) for name in CHAIN)
    assert create.parent.span_id == checkout.context.span_id
    assert create.kind is SpanKind.PRODUCER
    assert process.parent.span_id == create.context.span_id
    assert send.kind is SpanKind.CLIENT
    assert [link.context.span_id for link in send.links] == [create.context.span_id]


def test_a_row_that_an_observer_cannot_see_is_written_all_the_same(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    tracing.instrument()
    try:
        monkeypatch.setattr(Spans, "send", fail)
        monkeypatch.setattr(Spans, "receive", fail)
        connection, outbox = sqlite3.connect(":memory:"), Outbox()
        outbox.create(connection)
        with connection:
            connection.execute("CREATE TABLE sold (id INTEGER)")
            connection.execute("INSERT INTO sold VALUES (1)")
            outbox.add(connection, Message("orders", b"x"))
        with Relay(backend, outbox, lambda: connection) as relay:
            assert relay.send() == 1
        with PullConsumer(backend, group="reports") as consumer:
            assert [message.body for message in consumer.messages("orders", wait=0)] == [b"x"]
    finally:
        tracing.uninstrument()
    assert caplog.text.count("is not traced") == 3
