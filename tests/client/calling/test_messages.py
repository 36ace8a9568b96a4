"""Reading a topic in a loop, and sending without a Message."""

from __future__ import annotations

import asyncio
import datetime
import threading
from pathlib import Path
from typing import Any

import pytest

from rmqclient import Message, Producer, PullConsumer
from rmqclient.opening import Place
from rmqclient.store.bodies import Compression
from tests.client.conftest import wait_for


def test_a_loop_gets_what_is_there_of_all_queues_in_the_order_of_each(place: Place, topic: str) -> None:
    with Producer(place) as producer, PullConsumer(place, group=topic) as consumer:
        for number in range(600):
            producer.send(topic, b"%d" % number, tags="odd" if number % 2 else "even")
        messages = list(consumer.messages(topic, wait=0))
        odd = list(consumer.messages(topic, tags="odd", wait=0))
        late = list(consumer.messages(topic, start="latest", wait=0))
        ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
        since = list(consumer.messages(topic, start=ago, wait=0))
    assert sorted(int(message.body) for message in messages) == list(range(600))
    by_queue: dict[int, list[int]] = {}
    for message in messages:
        by_queue.setdefault(message.queue_id, []).append(message.queue_offset)
    assert all(offsets == list(range(len(offsets))) for offsets in by_queue.values())
    assert (len(odd), len(late), len(since)) == (300, 0, 600)


def test_a_group_goes_on_behind_what_was_yielded_when_it_was_committed(place: Place, topic: str) -> None:
    with Producer(place) as producer, PullConsumer(place, group=topic) as consumer:
        producer.send_batch([Message(topic, b"%d" % number) for number in range(10)])
        messages = consumer.messages(topic, start="committed", wait=0)
        seen = []
        for message in messages:
            seen.append(message.body)
            if len(seen) == 4:
                break
        assert [message.body for message in consumer.messages(topic, start="committed", wait=0)][:1] == [b"0"]
        messages.commit()
        rest = consumer.messages(topic, start="committed", wait=0)
        assert [message.body for message in rest] == [b"%d" % number for number in range(4, 10)]
        rest.commit()
        assert list(consumer.messages(topic, start="committed", wait=0)) == []


def test_a_compressed_batch_that_was_read_in_part_is_read_again(tmp_path: Path, topic: str) -> None:
    place = tmp_path / "store"
    with Producer(place) as producer, PullConsumer(place, group=topic) as consumer:
        producer.send_batch([Message(topic, b"%d" % number) for number in range(3)], compression=Compression.ZLIB)
        messages = consumer.messages(topic, start="committed", wait=0)
        assert next(iter(messages)).body == b"0"
        messages.commit()
        again = consumer.messages(topic, start="committed", wait=0)
        assert [message.body for message in again] == [b"0", b"1", b"2"]
        again.commit()
        assert list(consumer.messages(topic, start="committed", wait=0)) == []


def test_a_loop_at_the_end_waits_for_the_next_messages(place: Place, topic: str) -> None:
    found: list[bytes] = []
    with Producer(place) as producer, PullConsumer(place, group=topic) as consumer:
        producer.create_topic(topic, 1)
        producer.send(topic, b"before")
        wait_for(lambda: len(list(consumer.messages(topic, wait=0))) == 1, "the first one stands in its queue")
        messages = consumer.messages(topic, start="latest")

        def read() -> None:
            for message in messages:
                found.append(bytes(message.body))
                if len(found) == 3:
                    return

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        for number in range(3):
            producer.send(topic, b"%d" % number)
        reading.join(20)
    assert found == [b"0", b"1", b"2"]


def test_an_asynchronous_loop_waits_beside_others(place: Place, topic: str) -> None:
    async def main(producer: Producer, consumer: PullConsumer) -> list[bytes]:
        found: list[bytes] = []
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while len(found) < 5:
                ticks += 1
                await producer.send_async(topic, b"%d" % ticks)
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        async for message in consumer.messages(topic):
            found.append(message.body)
            if len(found) == 5:
                break
        await ticking
        return found

    with Producer(place) as producer, PullConsumer(place, group=topic) as consumer:
        producer.create_topic(topic, 1)
        assert asyncio.run(main(producer, consumer)) == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("start", ["first", None, 5, datetime.datetime(2026, 1, 1)])  # noqa: DTZ001 - what is refused
def test_another_start_is_refused(tmp_path: Any, start: Any) -> None:
    with Producer(tmp_path / "store") as producer, PullConsumer(tmp_path / "store", group="g") as consumer:
        producer.create_topic("t", 1)
        with pytest.raises(ValueError, match="time zone"):
            consumer.messages("t", start=start)


# --- sending without a Message ---------------------------------------------------------------------------------------


def test_a_topic_and_a_body_make_a_message(place: Place, topic: str) -> None:
    with Producer(place) as producer, PullConsumer(place, group=topic) as consumer:
        options: dict[str, Any] = {"key": "A-17", "tags": "paid", "properties": {"region": "eu"}, "sharding_key": "c4"}
        one = producer.send(topic, {"total": 12.5}, **options)
        two = producer.send_async(topic, b"", sharding_key="c4").result()
        three = producer.send(Message(topic, b""), sharding_key="c4")
        assert one.queue == two.queue == three.queue == producer.send(Message(topic, b""), "c4").queue
        message, *_ = consumer.messages(topic, wait=0)
    assert (message.body, message.keys, message.tags) == (b'{"total":12.5}', ("A-17",), "paid")
    assert (message.properties["region"], message.sharding_key) == ("eu", "c4")


def test_what_belongs_into_a_message_is_not_given_beside_one(tmp_path: Any) -> None:
    with Producer(tmp_path / "store") as producer:
        for send in (producer.send, producer.send_async):
            with pytest.raises(TypeError, match=r"key='k'.*give them to the Message"):
                send(Message("t", b""), key="k")  # type: ignore[call-overload]
            with pytest.raises(TypeError, match=r"send\('t'\) has no body"):
                send("t")  # type: ignore[call-overload]
            with pytest.raises(TypeError, match=r"'paid' is one argument too many: .* such as tags='paid'"):
                send("t", b"", "paid")  # type: ignore[call-overload]
            with pytest.raises(TypeError, match=r"send\(message, 'a', sharding_key='b'\) has two sharding keys"):
                send(Message("t", b""), "a", sharding_key="b")
            with pytest.raises(TypeError, match="send takes a Message, not NoneType"):
                send(None)  # type: ignore[call-overload]
