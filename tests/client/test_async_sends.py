"""Sending from an event loop: what a future of a send says, and that the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from rmqclient import Compression, Durability, Message, Producer, SendFuture, StoreConfig
from rmqclient.backend import Backend
from rmqclient.errors import MessageRejected, NotFlushed, StoreClosed
from rmqclient.store import MessageStore, open_store
from rmqclient.store.upkeep.group_commit import GroupCommit

SYNC = StoreConfig(durability=Durability.SYNC)
LONG_S = 20.0


class Disk:
    """Lets a test decide when a flush is over, and how."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.failure: Exception | None = None
        self.waits = 0

    def wait(self) -> None:
        self.waits += 1
        assert self.is_over.wait(LONG_S), "the test has let the flush go on"
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(GroupCommit, "wait_until_flushed", lambda *_: made.wait())
    return made


def test_an_awaited_send_gives_the_place_of_the_message(backend: Backend) -> None:
    async def send() -> None:
        with Producer(backend) as producer:
            result = await producer.send_async(Message("orders", b"a"), "one key")
            assert backend.queues.message_at(result.queue, result.queue_offset).body == b"a"

    asyncio.run(send())


def test_messages_of_one_key_are_stored_in_the_order_of_the_calls(tmp_path: Path) -> None:
    async def send() -> None:
        with open_store(tmp_path, SYNC) as store, Producer(store) as producer:
            futures = [producer.send_async(Message("orders", b"%d" % number), "key") for number in range(100)]
            results = await asyncio.gather(*futures)
            assert [store.messages.at(each.queue, each.queue_offset).body for each in results] == [
                b"%d" % number for number in range(100)
            ]
            assert [each.queue_offset for each in results] == list(range(100))
            assert store.state.flushed_to >= results[-1].commit_log_end

    asyncio.run(send())


def test_a_body_is_compressed_as_for_any_send(store: MessageStore) -> None:
    with Producer(store, compression=Compression.ZLIB) as producer:
        result = producer.send_async(Message("orders", b"a" * 10_000)).result()
    found = store.messages.at(result.queue, result.queue_offset)
    assert (len(found.stored_body) < 1_000, found.body) == (True, b"a" * 10_000)


def test_a_delayed_message_waits_for_its_time(store: MessageStore, producer: Producer) -> None:
    result = producer.send_async(Message("orders", b""), delay=60).result()
    assert producer.cancel(result.message_id)


def test_the_loop_goes_on_while_a_send_waits_for_the_disk(tmp_path: Path, disk: Disk) -> None:
    async def send() -> None:
        with Producer(tmp_path, config=SYNC) as producer:
            futures = [producer.send_async(Message("orders", b"")) for _ in range(50)]
            waiting = asyncio.gather(*futures)
            await asyncio.sleep(0)
            assert not any(future.done() for future in futures)
            disk.is_over.set()
            assert len(await waiting) == 50
        assert disk.waits <= 3, "they shared their flushes"

    asyncio.run(send())


def test_a_flush_that_fails_is_told_where_the_future_is_awaited(tmp_path: Path, disk: Disk) -> None:
    disk.failure = NotFlushed("no flush")
    disk.is_over.set()
    with Producer(tmp_path, config=SYNC) as producer:
        future = producer.send_async(Message("orders", b""))
        with pytest.raises(NotFlushed) as told:
            future.result(LONG_S)
        disk.failure = None
    assert told.value.stored


def test_what_is_known_at_once_is_raised_at_once(producer: Producer) -> None:
    with pytest.raises(MessageRejected):
        producer.send_async(Message("orders", {1, object()}))


def test_closing_waits_for_the_sends_that_are_under_way(tmp_path: Path, disk: Disk) -> None:
    producer = Producer(tmp_path, config=SYNC)
    future = producer.send_async(Message("orders", b""))
    closing = threading.Thread(target=producer.close)
    closing.start()
    assert not future.done()
    disk.is_over.set()
    closing.join(LONG_S)
    assert future.done()
    with pytest.raises(StoreClosed):
        producer.send_async(Message("orders", b""))


def test_a_cancelled_future_harms_no_other_one(tmp_path: Path, disk: Disk) -> None:
    with Producer(tmp_path, config=SYNC) as producer:
        futures: list[SendFuture] = [producer.send_async(Message("orders", b"")) for _ in range(3)]
        assert futures[1].cancel()
        disk.is_over.set()
        assert futures[2].result(LONG_S).queue.topic == "orders"
