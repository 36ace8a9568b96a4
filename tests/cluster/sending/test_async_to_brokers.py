"""Sends that nobody waits for: the loop goes on, failures are tried again, and closing waits."""

from __future__ import annotations

import asyncio
import threading

import orjson
import pytest

from rmqclient import Message, Producer
from rmqclient.backend.futures import SendFuture
from rmqclient.cluster.client.brokers import Brokers
from rmqclient.cluster.sending import under_way
from rmqclient.errors import MessageIllegal, ProducerFull, RequestTimedOut, StoreClosed
from rmqclient.remoting.errors import PlaceUnknown
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import RequestCode, ResponseCode, response
from tests.cluster.sending.conftest import SEND, TWO, broker_of, no, nothing, only_on, producing, stored
from tests.support.cluster.standard_answers import route_of
from tests.support.threads import no_thread_left

LONG_S = 20.0


def test_the_loop_goes_on_while_brokers_are_slow() -> None:
    async def send(producer: Producer, answer_all: threading.Event) -> int:
        futures = [producer.send_async(Message("orders", b"")) for _ in range(50)]
        waiting = asyncio.gather(*futures)
        await asyncio.sleep(0)
        assert not any(future.done() for future in futures)
        answer_all.set()
        return len(await waiting)

    with producing() as (cluster, producer):
        held, answer_all = list[Frame](), threading.Event()
        cluster.script[SEND] = held.append

        def answer() -> None:
            assert answer_all.wait(LONG_S)
            for asked in cluster.wait_for(SEND, 50):
                cluster.answer(stored(asked))

        answering = threading.Thread(target=answer)
        answering.start()
        assert asyncio.run(send(producer, answer_all)) == 50
        answering.join(LONG_S)


def test_a_failure_is_tried_again_on_another_broker() -> None:
    with producing({SEND: only_on("broker-a", no(2))}, brokers=TWO) as (_, producer):
        futures = [producer.send_async(Message("orders", b"")) for _ in range(10)]
        assert {future.result(LONG_S).queue.broker_name for future in futures} == {"broker-b"}


def test_an_error_is_told_where_the_future_is_awaited() -> None:
    with producing({SEND: no(ResponseCode.MESSAGE_ILLEGAL)}) as (_, producer):
        future = producer.send_async(Message("orders", b""))
        with pytest.raises(MessageIllegal):
            future.result(LONG_S)


def test_a_message_without_an_answer_may_be_stored() -> None:
    with producing({SEND: nothing}, options="timeout=1") as (cluster, producer):
        with pytest.raises(RequestTimedOut) as told:
            producer.send_async(Message("orders", b"")).result(LONG_S)
        assert len(cluster.asked(SEND)) == 3
    assert told.value.stored


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("msgId", "nonsense", "'nonsense' is not an offset message id"),
        ("queueOffset", "-1", "queueOffset is -1: queues begin at 0"),
        ("queueOffset", "9223372036854775808", "queueOffset is '9223372036854775808'"),
        ("queueOffset", None, "needs queueOffset"),
    ],
)
def test_an_answer_that_makes_no_sense_is_told(field: str, value: str | None, told: str) -> None:
    def nonsense(asked: Frame) -> Frame:
        answer = stored(asked)
        del answer.fields[field]
        answer.fields |= {} if value is None else {field: value}
        return answer

    with producing({SEND: nonsense}) as (_, producer):
        with pytest.raises(PlaceUnknown, match=f"broker broker-a has stored what was sent.*{told}") as sent:
            producer.send(Message("orders", b""))
        with pytest.raises(PlaceUnknown, match=told):
            producer.send_async(Message("orders", b"")).result(LONG_S)
    assert sent.value.stored


def test_an_exception_that_nobody_expected_ends_its_own_send_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a host on which no thread can be started when the first send is to be tried again
    known, failures = Brokers.address, iter([RuntimeError("can't start new thread")])

    def address(brokers: Brokers, broker_name: str, broker_id: int = 0) -> str:
        if threading.current_thread().name == "rmq-sends":
            for failure in failures:
                raise failure
        return known(brokers, broker_name, broker_id)

    monkeypatch.setattr(Brokers, "address", address)
    with producing({SEND: only_on("broker-a", no(2))}, brokers=("broker-a",)) as (cluster, producer):
        # When it and another one are sent, then each has its outcome
        with pytest.raises(RuntimeError, match="new thread"):
            producer.send_async(Message("orders", b"")).result(LONG_S)
        cluster.script[SEND] = stored
        assert producer.send_async(Message("others", b"")).result(LONG_S).queue.topic == "others"


def test_the_first_message_of_a_topic_does_not_wait_for_a_name_server() -> None:
    with producing(brokers=("names", "broker-a")) as (cluster, producer):
        routes = list[Frame]()
        cluster.script[RequestCode.GET_ROUTEINFO_BY_TOPIC] = routes.append
        future = producer.send_async(Message("orders", b""))
        assert not future.done()
        (asked,) = cluster.wait_for(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        del cluster.script[RequestCode.GET_ROUTEINFO_BY_TOPIC]
        cluster.answer(response(asked, body=orjson.dumps(route_of(cluster.state, 4))))
        assert future.result(LONG_S).queue.topic == "orders"


def test_closing_waits_for_what_is_under_way() -> None:
    with producing() as (cluster, producer):
        cluster.script[SEND] = nothing
        future = producer.send_async(Message("orders", b""))
        (asked,) = cluster.wait_for(SEND)
        closing = threading.Thread(target=producer.close)
        closing.start()
        closing.join(0.2)
        assert closing.is_alive()
        cluster.answer(stored(asked))
        closing.join(LONG_S)
        assert future.done()
        assert future.result().queue.broker_name == broker_of(asked)
        with pytest.raises(StoreClosed):
            producer.send_async(Message("orders", b""))


def test_threads_end_with_the_producer() -> None:
    answers = {SEND: only_on("broker-a", no(2))}
    with no_thread_left("rmq-sends"), producing(answers, brokers=TWO) as (_, producer):
        producer.send_async(Message("orders", b"")).result(LONG_S)


def test_a_send_waits_for_room_when_as_many_are_under_way_as_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_way, "MOST_SENDS", 2)
    with producing({SEND: nothing}) as (cluster, producer):
        futures: list[SendFuture] = []
        sending = threading.Thread(
            target=lambda: futures.extend(producer.send_async(Message("orders", b"")) for _ in range(3))
        )
        sending.start()
        first, second = cluster.wait_for(SEND, 2)
        sending.join(0.2)
        assert sending.is_alive()
        cluster.answer(stored(first))
        sending.join(LONG_S)
        for asked in (second, cluster.wait_for(SEND, 3)[2]):
            cluster.answer(stored(asked))
        assert len([future.result(LONG_S) for future in futures]) == 3


@pytest.mark.parametrize(("limit", "value"), [("MOST_SENDS", 2), ("MOST_BYTES", 2_500)])
def test_a_send_that_gets_no_room_is_refused_and_was_not_sent(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(under_way, limit, value)
    with producing({SEND: nothing}, options="timeout=1") as (cluster, producer):
        futures = [producer.send_async(Message("orders", bytes(1_000))) for _ in range(2)]
        with pytest.raises(ProducerFull, match=f"{value:,}") as told:
            producer.send_async(Message("orders", bytes(1_000)))
        for future in futures:
            with pytest.raises(RequestTimedOut):
                future.result(LONG_S)
        assert len(cluster.asked(SEND)) == 2 * 3
    assert told.value.retryable
    assert not told.value.stored


def test_a_message_that_exceeds_the_room_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_way, "MOST_BYTES", 100)
    with producing({SEND: stored}) as (_, producer):
        for _ in range(3):
            producer.send_async(Message("orders", bytes(1_000))).result(LONG_S)


def test_a_callback_may_send_the_next_message_and_never_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_way, "MOST_SENDS", 1)
    refused, over = list[ProducerFull](), threading.Event()
    with producing({SEND: stored}, options="timeout=30") as (cluster, producer):

        def send_next(_: object) -> None:
            if len(cluster.asked(SEND)) == 5:
                over.set()
                return
            producer.send_async(Message("orders", b"")).add_done_callback(send_next)
            try:
                producer.send_async(Message("orders", b""))
            except ProducerFull as error:
                refused.append(error)

        producer.send_async(Message("orders", b"")).add_done_callback(send_next)
        assert over.wait(LONG_S)
    assert len(refused) == 4
