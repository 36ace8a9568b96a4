"""Requests as an application writes them: who answers, which reply counts, and what comes when none does."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from rmqclient import App, Batch, Durability, Message, Producer, ReceivedMessage, SendResult, StoreConfig, seconds_left
from rmqclient.errors import HandlerError, MessageRejected, ReplyRejected, RequestTimeout, StoreClosed
from rmqclient.failures import dead_letters
from rmqclient.opening import open_backend
from rmqclient.sending.request import Requester
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.store.settings.config_file import TopicConfig, write_topics
from tests.client.conftest import SOON, consuming, wait_for
from tests.support.threads import no_thread_left

REPLIES = "DefaultCluster_REPLY_TOPIC"
LONG_S = 20.0
"""Nobody waits so long, unless a reply is lost."""
SHORT_S = 0.05


def replies(store: MessageStore, topic: str = REPLIES) -> list[ReceivedMessage]:
    return [
        store.messages.at(queue, number)
        for queue in store.topics.queues(topic)
        for number in range(store.topics.max_offset(queue))
    ]


def echoing(store: MessageStore) -> App:
    app = App(store.root)

    @app.handler("echo", group="echo", replies=True, threads=2)
    def echo(message: ReceivedMessage) -> bytes:
        return message.body

    return app


def asked(store: MessageStore, topic: str, number: int = 0) -> ReceivedMessage:
    found = [queue for queue in store.topics.queues(topic) if store.topics.max_offset(queue)]
    return store.messages.at(found[0], number)


# --- a reply ------------------------------------------------------------------------------------------


@dataclass
class Order:
    total: float


@pytest.mark.guarantee("G45")
def test_what_the_handler_returns_is_the_reply(store: MessageStore, producer: Producer) -> None:
    app = App(store.root)

    @app.handler("orders", group="billing", replies=True)
    def bill(order: Order) -> dict[str, float]:
        return {"paid": order.total * 2}

    with consuming(store, app):
        reply = producer.request(Message("orders", Order(6.25)), timedelta(seconds=LONG_S))

    assert reply.body == b'{"paid":12.5}'
    assert reply.topic == REPLIES


def test_a_coroutine_answers_and_a_reply_is_awaited(store: MessageStore, producer: Producer) -> None:
    app = App(store.root)

    @app.handler("orders", group="billing", replies=True)
    async def bill(message: ReceivedMessage) -> bytes:
        await asyncio.sleep(0)
        return message.body * 2

    async def ask() -> list[ReceivedMessage]:
        return await asyncio.gather(
            *(producer.request_async(Message("orders", b"%d" % number), LONG_S) for number in range(10))
        )

    with consuming(store, app):
        assert [reply.body for reply in asyncio.run(ask())] == [b"%d%d" % (number, number) for number in range(10)]


@pytest.mark.parametrize("order", ["queue", "key"])
def test_a_handler_that_keeps_an_order_replies_too(
    store: MessageStore, producer: Producer, order: Literal["queue", "key"]
) -> None:
    app = App(store.root)

    @app.handler("orders", group="billing", replies=True, order=order)
    def bill(message: ReceivedMessage) -> str:
        return message.sharding_key or ""

    with consuming(store, app):
        assert producer.request(Message("orders", b"?"), LONG_S, "customer-4").body == b"customer-4"


def test_any_handler_replies_with_a_producer(store: MessageStore, producer: Producer) -> None:
    app = App(store.root)

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        producer.send_reply(message, {"paid": message.keys})

    with consuming(store, app):
        assert producer.request(Message("orders", b"", keys=["A-17"]), LONG_S).body == b'{"paid":["A-17"]}'


@pytest.mark.guarantee("G45")
def test_each_of_many_gets_its_own_reply(store: MessageStore) -> None:
    # Given requesters that share the one queue of the reply topic
    store.topics.create(REPLIES, 1)
    rounds = 200

    def ask(name: int) -> list[bytes]:
        with Producer(store) as producer:
            messages = [Message("echo", b"%d of %d" % (number, name)) for number in range(rounds)]
            return [future.result().body for future in [producer.request_async(each, LONG_S) for each in messages]]

    # When all of them ask at once
    with consuming(store, echoing(store)), ThreadPoolExecutor(6) as pool:
        got = list(pool.map(ask, range(6)))

    # Then nobody gets another's
    assert got == [[b"%d of %d" % (number, name) for number in range(rounds)] for name in range(6)]


@pytest.mark.guarantee("G45")
def test_the_first_reply_counts(store: MessageStore, producer: Producer) -> None:
    app = App(store.root)

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        producer.send_reply(message, b"first of " + message.body)
        producer.send_reply(message, b"second of " + message.body)

    with consuming(store, app):
        got = [producer.request(Message("orders", b"%d" % number), LONG_S).body for number in range(20)]

    assert got == [b"first of %d" % number for number in range(20)]


@pytest.mark.guarantee("G45")
def test_a_request_whose_handler_failed_is_answered_by_its_retry(store: MessageStore, producer: Producer) -> None:
    app = App(store.root)

    @app.handler("orders", group="billing", replies=True, retry=SOON)
    def bill(message: ReceivedMessage) -> str:
        if message.delivery_attempt == 1:
            raise OSError("not now")
        return f"attempt {message.delivery_attempt}"

    with consuming(store, app):
        assert producer.request(Message("orders", b""), LONG_S).body == b"attempt 2"


@pytest.mark.guarantee("G121")
@pytest.mark.parametrize("order", [None, "key", "queue"])
def test_a_reply_that_cannot_be_encoded_is_asked_for_once(
    store: MessageStore, producer: Producer, order: Literal["key", "queue"] | None
) -> None:
    # Given a handler that does its work, and returns what cannot be a reply
    app, paid = App(store.root), []

    @app.handler("orders", group="billing", replies=True, order=order, retry=None if order else SOON)
    def bill(message: ReceivedMessage) -> object:
        paid.append(message.message_id)
        return object()

    # When it is asked
    with consuming(store, app):
        producer.request_async(Message("orders", b""), LONG_S, sharding_key="A-17")
        wait_for(lambda: list(dead_letters.select(store, "billing", dead_letters.Selection())), "the dead letter")

    # Then it did its work once
    (letter,) = dead_letters.select(store, "billing", dead_letters.Selection())
    assert "ReplyRejected" in letter.error
    assert paid == [letter.message.message_id]


def test_a_policy_may_ask_for_another_attempt_at_a_reply(store: MessageStore, producer: Producer) -> None:
    app, given = App(store.root), [object(), "fine"]
    again = replace(SOON, retry_on=(ReplyRejected, Exception))

    @app.handler("orders", group="billing", replies=True, retry=again)
    def bill(_: ReceivedMessage) -> object:
        return given.pop(0)

    with consuming(store, app) as consumer:
        assert producer.request(Message("orders", b""), LONG_S).body == b"fine"
        assert consumer.counters.failed == 1


def test_what_is_no_request_gets_no_reply(store: MessageStore, producer: Producer) -> None:
    with consuming(store, echoing(store)) as consumer:
        producer.send(Message("echo", b"plain"))
        wait_for(lambda: consumer.counters.handled == 1, "the message is handled")

    assert REPLIES not in store.topics.topics()
    with pytest.raises(MessageRejected, match="is not a request, so it has no reply"):
        producer.send_reply(asked(store, "echo"), b"?")


def test_with_sync_durability_a_request_waits_until_it_is_on_the_disk(tmp_path: Path) -> None:
    config = StoreConfig(durability=Durability.SYNC)
    with (
        open_store(tmp_path / "sync", config) as store,
        consuming(store, echoing(store)),
        Producer(store) as producer,
    ):
        reply = producer.request_async(Message("echo", b"safe"), LONG_S)
        assert store.state.flushed_to > asked(store, "echo").commit_log_offset
        assert reply.result().body == b"safe"


# --- no reply -----------------------------------------------------------------------------------------


@pytest.mark.guarantee("G45")
def test_a_request_without_a_reply_ends_with_its_time(store: MessageStore, producer: Producer) -> None:
    with pytest.raises(RequestTimeout, match=r"request [0-9A-F]{32} was stored in topic 'orders'.* in 0\.05 s") as told:
        producer.request(Message("orders", b""), SHORT_S)

    assert told.value.stored
    assert isinstance(told.value, TimeoutError)
    assert asked(store, "orders").message_id in str(told.value)


def test_a_request_whose_sending_takes_longer_is_given_up_when_it_is_sent(store: MessageStore) -> None:
    requester, producer = Requester(open_backend(store)), Producer(store)

    def send_slowly(message: Message, sharding_key: str | None) -> SendResult:
        threading.Event().wait(3 * SHORT_S)
        return producer.send(message, sharding_key)

    with closing(requester), producer:
        future = requester.request(send_slowly, Message("orders", b""), None, SHORT_S)
        with pytest.raises(RequestTimeout, match=f"request {asked(store, 'orders').message_id} was stored"):
            future.result()


@pytest.mark.guarantee("G45")
def test_a_late_reply_is_dropped(store: MessageStore, producer: Producer) -> None:
    # Given a request that was given up
    with pytest.raises(RequestTimeout):
        producer.request(Message("orders", b"late"), SHORT_S)
    # When its reply comes while another one is awaited
    other = producer.request_async(Message("orders", b"next"), LONG_S)
    requests = [
        store.messages.at(queue, number)
        for queue in store.topics.queues("orders")
        for number in range(store.topics.max_offset(queue))
    ]
    for request in sorted(requests, key=lambda each: each.commit_log_offset):
        producer.send_reply(request, b"to " + request.body)
    # Then that one gets its own
    assert other.result().body == b"to next"
    assert len(replies(store)) == 2


def test_requests_with_several_times_end_in_their_order(producer: Producer) -> None:
    # Given requests that begin one after the other, however long each takes to send
    ended: list[float] = []
    futures, deadlines = {}, dict[float, float]()
    for seconds in (1.5, 0.5, 1.0):
        futures[seconds] = producer.request_async(Message("orders", b""), seconds)
        deadlines |= {each.seconds: each.deadline for each in producer._requester._unanswered.requests.values()}
    # When the time of each is over
    for seconds, future in futures.items():
        future.add_done_callback(partial(lambda seconds, _: ended.append(seconds), seconds))
    for future in futures.values():
        assert isinstance(future.exception(), RequestTimeout)
    # Then they ended in the order of their deadlines, also when the thread was late and found several at once
    wait_for(lambda: len(ended) == 3, "all have ended")
    assert ended == sorted(deadlines, key=deadlines.__getitem__)


def test_a_cancelled_request_takes_no_reply_and_no_other_one_with_it(store: MessageStore, producer: Producer) -> None:
    cancelled = producer.request_async(Message("echo", b"cancelled"), LONG_S)
    assert cancelled.cancel()
    with consuming(store, echoing(store)):
        assert producer.request(Message("echo", b"other"), LONG_S).body == b"other"
        wait_for(lambda: len(replies(store)) == 2, "both are answered")
        assert producer.request(Message("echo", b"one more"), LONG_S).body == b"one more"


@pytest.mark.guarantee("G45")
def test_replies_that_nobody_has_looked_at_are_not_passed_over(store: MessageStore, producer: Producer) -> None:
    store.topics.create("orders", 1)
    queue, release = MessageQueue("orders", 0), threading.Event()

    def answered(number: int) -> None:
        producer.send_reply(store.messages.at(queue, number), b"%d" % number)

    # Given a callback that keeps the thread which receives replies
    first = producer.request_async(Message("orders", b""), LONG_S)
    first.add_done_callback(lambda _: release.wait(LONG_S))
    answered(0)
    wait_for(first.done, "the first reply is received")
    # When there is a reply behind its back, and then another request
    second = producer.request_async(Message("orders", b""), 2)
    answered(1)
    third = producer.request_async(Message("orders", b""), 2)
    answered(2)
    release.set()
    # Then none of them is missed
    assert [each.result().body for each in (first, second, third)] == [b"0", b"1", b"2"]


def test_a_callback_that_exits_ends_nothing_else(store: MessageStore, producer: Producer) -> None:
    def exit_now(_: object) -> None:
        raise SystemExit

    store.topics.create("orders", 1)
    first, second = (producer.request_async(Message("orders", b""), LONG_S) for _ in range(2))
    first.add_done_callback(exit_now)
    for number in range(2):
        producer.send_reply(store.messages.at(MessageQueue("orders", 0), number), b"%d" % number)

    assert [each.result().body for each in (first, second)] == [b"0", b"1"]


def test_a_request_that_cannot_be_sent_is_not_awaited(producer: Producer) -> None:
    with pytest.raises(MessageRejected):
        producer.request(Message("orders", object()), LONG_S)
    assert not producer._requester._unanswered.requests


def test_closing_ends_the_requests_that_wait(store: MessageStore) -> None:
    with no_thread_left("rmq-replies"), Producer(store) as producer:
        future = producer.request_async(Message("orders", b""), LONG_S)
    with pytest.raises(StoreClosed, match="its producer was closed before the reply came"):
        future.result()
    with pytest.raises(StoreClosed):
        producer.request(Message("orders", b""), LONG_S)


def test_a_forked_child_cannot_ask(producer: Producer) -> None:
    producer.request_async(Message("orders", b""), LONG_S)
    pid = os.fork()
    if pid == 0:
        try:
            producer.request(Message("orders", b""), LONG_S)
        except StoreClosed:
            producer.close()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.parametrize("timeout", [0, -1.0, timedelta(0), float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(producer: Producer, timeout: float) -> None:
    with pytest.raises(ValueError, match="give a timedelta or seconds, above 0"):
        producer.request(Message("orders", b""), timeout)


def test_a_handler_of_batches_cannot_reply(store: MessageStore) -> None:
    app = App(store.root)
    with pytest.raises(HandlerError, match="one value cannot answer many requests"):
        app.handler("orders", group="billing", replies=True, batch=Batch(10))
    with pytest.raises(HandlerError, match="replies='yes'"):
        app.handler("orders", group="billing", replies="yes")  # type: ignore[arg-type]


# --- on the disk --------------------------------------------------------------------------------------


def test_requests_and_replies_have_the_properties_of_rocketmq(store: MessageStore, producer: Producer) -> None:
    with consuming(store, echoing(store)):
        message = Message("echo", b"hello", tags="greeting", keys=["k"], properties={"TTL": "mine", "a": "b"}, flag=3)
        reply = producer.request(message, LONG_S)

    request = asked(store, "echo")
    assert (request.tags, request.keys, request.flag, request.body) == ("greeting", ("k",), 3, b"hello")
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", request.properties["CORRELATION_ID"])
    assert request.properties | {"a": "b", "TTL": "20000", "CLUSTER": "DefaultCluster"} == request.properties
    shared = {name: request.properties[name] for name in ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL")}
    own = {"MSG_TYPE": "reply", "TAGS": shared["REPLY_TO_CLIENT"], "__SHARDINGKEY": shared["REPLY_TO_CLIENT"]}
    assert reply.properties == {**shared, **own, "UNIQ_KEY": reply.message_id}
    assert len(store.topics.queues(REPLIES)) == 16


def test_the_reply_topic_of_a_broker_is_used_as_it_is(tmp_path: Path) -> None:
    # Given the topics of a broker's cluster
    root = tmp_path / "brokers"
    open_store(root).close()
    write_topics(root, {"prod": TopicConfig(perm=7), "prod_REPLY_TOPIC": TopicConfig(1, 1)})
    # When a request is answered there
    with open_store(root) as store, Producer(store) as producer, consuming(store, echoing(store)):
        reply = producer.request(Message("echo", b""), LONG_S)
        # Then the reply is in its one queue
        assert [each.message_id for each in replies(store, "prod_REPLY_TOPIC")] == [reply.message_id]
        assert store.topics.queues("prod_REPLY_TOPIC") == [MessageQueue("prod_REPLY_TOPIC", 0)]
        assert asked(store, "echo").properties["CLUSTER"] == "prod"


def test_a_handler_can_tell_whether_anybody_still_waits(store: MessageStore, producer: Producer) -> None:
    producer.request_async(Message("orders", b""), LONG_S)
    producer.send(Message("plain", b""))
    with pytest.raises(RequestTimeout):
        producer.request(Message("late", b""), SHORT_S)

    assert 0 < seconds_left(asked(store, "orders")) <= LONG_S
    wait_for(lambda: seconds_left(asked(store, "late")) <= 0, "its time is over", timeout_s=1)
    assert seconds_left(asked(store, "plain")) == float("inf")
