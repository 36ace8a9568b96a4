"""The write buffer of a producer: when it is stored, in which order, and what a failure or a kill costs."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient import Durability, Message, Producer, StoreConfig
from rmqclient.local.backend import store_of
from rmqclient.store import MessageQueue, MessageStore, boottime, open_store
from rmqclient.store.append.write_buffer import WriteBuffer
from rmqclient.store.errors import BodyTooLarge, MessageRejected, NotReplicated, StoreClosed, StoreFull, StorePoisoned
from rmqclient.store.settings.disk import Usage
from rmqclient.store.settings.replication import OnLost, Replication, Sync
from tests.client.conftest import wait_for
from tests.support.host.forking import ROOT
from tests.support.oracle import reference

SMALL = StoreConfig(
    commit_log_file_bytes=36_864, max_body_bytes=2_048, consume_queue_file_entries=64, default_queue_count=1
)
NEVER_BY_ITSELF = replace(SMALL, commit_interval_ms=3_600_000)
QUEUE = MessageQueue("t", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", NEVER_BY_ITSELF, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def producer(store: MessageStore) -> Iterator[Producer]:
    with Producer(store, write_buffer_bytes=10_000) as made:
        yield made


def stored(store: MessageStore, topic: str = "t") -> list[bytes]:
    if topic not in store.topics.topics():
        return []
    return [
        store.messages.at(queue, offset).body
        for queue in store.topics.queues(topic)
        for offset in range(store.topics.max_offset(queue))
    ]


def late_replicas(store: MessageStore) -> None:
    """Let sends wait for a replica that is in sync, and in vain."""
    store.log_sending.configure(Replication(Sync.MEMORY, OnLost.REFUSE, timeout_ms=100))
    store.log_sending.say(store.state.published_to, boottime() + 60_000_000_000)


def full_disk(store: MessageStore) -> None:
    store.disk.usage = lambda: Usage(95.0, 1 << 30)  # type: ignore[method-assign]
    store.disk.look()


def free_disk(store: MessageStore) -> None:
    store.disk.usage = lambda: Usage(50.0, 1 << 30)  # type: ignore[method-assign]


# --- when -----------------------------------------------------------------------------------------


def test_nothing_is_stored_before_a_flush_and_all_of_it_after(store: MessageStore, producer: Producer) -> None:
    for number in range(20):
        producer.send_buffered(Message("t", b"%d" % number))
    assert stored(store) == []
    assert producer.flush() == 20
    assert stored(store) == [b"%d" % number for number in range(20)]
    assert producer.flush() == 0


def test_a_message_that_does_not_fit_any_more_makes_room_by_a_flush(store: MessageStore, producer: Producer) -> None:
    for number in range(8):
        producer.send_buffered(Message("t", bytes([number]) * 1_000))
    assert stored(store) == []
    producer.send_buffered(Message("t", bytes(1_000)))
    assert len(stored(store)) == 8
    producer.flush()
    assert len(stored(store)) == 9


def test_a_message_larger_than_the_buffer_is_taken(store: MessageStore) -> None:
    with Producer(store, write_buffer_bytes=100) as producer:
        producer.send_buffered(Message("t", bytes(2_000)))
        producer.send_buffered(Message("t", bytes(2_000)))
        assert len(stored(store)) == 1
    assert len(stored(store)) == 2


def test_it_is_stored_by_itself(tmp_path: Path) -> None:
    config = replace(SMALL, commit_interval_ms=10)
    with Producer(tmp_path / "store", config=config, write_buffer_bytes=10_000) as producer:
        for _ in range(2):
            producer.send_buffered(Message("t", b"first"))
            producer.send_buffered(Message("t", b"second"))
            wait_for(lambda: len(buffer_of(producer)) == 0, "the buffer is flushed")
        assert stored(store_of(producer._backend, "a test")) == [b"first", b"second"] * 2


def test_senders_are_not_held_up_by_a_flush_that_is_stuck_until_the_buffer_is_full(
    store: MessageStore, producer: Producer
) -> None:
    # Given a flush that waits for the append lock
    producer.create_topic("t", 1)
    producer.send_buffered(Message("t", b"0"))
    with ThreadPoolExecutor(2) as pool:
        with store.state.locked(store.state.append_mutex, 1_000):
            flushed = pool.submit(producer.flush)
            wait_for(lambda: buffer_of(producer)._last is None, "the commit has begun")
            for number in range(1, 20):
                producer.send_buffered(Message("t", b"%d" % number))
            assert not flushed.done()
            large = [pool.submit(producer.send_buffered, Message("t", bytes(2_000))) for _ in range(5)]
            wait_for(lambda: len(buffer_of(producer)) >= 22, "the buffer is full")
            assert not large[-1].done()
        assert flushed.result(30) == 1
        large[-1].result(30)
    producer.flush()
    assert stored(store)[:20] == [b"%d" % number for number in range(20)]
    assert len(stored(store)) == 25


def test_closing_stores_the_rest(tmp_path: Path) -> None:
    producer = Producer(tmp_path / "store", config=NEVER_BY_ITSELF, write_buffer_bytes=10_000)
    producer.send_buffered(Message("t", b"rest"))
    producer.close()
    producer.close()
    assert [record.body for _, record in reference.read_commit_log(tmp_path / "store")] == [b"rest"]
    for call in (producer.flush, lambda: producer.send_buffered(Message("t", b""))):
        with pytest.raises(StoreClosed):
            call()


# --- in which order -------------------------------------------------------------------------------


@pytest.mark.guarantee("G4")
def test_messages_keep_their_order_whatever_their_topics_and_keys(store: MessageStore, producer: Producer) -> None:
    # Given keys that change with every message, all of them in one queue, between messages of another topic
    sent = []
    for number in range(300):
        body = b"%d" % number
        producer.send_buffered(Message("t", body), sharding_key=str(number % 3))
        sent.append(body)
        if number % 7 == 0:
            producer.send_buffered(Message("other", body))
    producer.flush()
    assert stored(store) == sent
    assert store.messages.at(QUEUE, 5).sharding_key == "2"


def test_a_run_of_messages_is_one_batch_up_to_what_one_append_takes(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    buffer = buffer_of(producer)

    class Counting:
        def __init__(self, appender: object) -> None:
            self.record_size = appender.record_size  # type: ignore[attr-defined]
            self.queue_of = appender.queue_of  # type: ignore[attr-defined]
            self._append_batch = appender.append_batch  # type: ignore[attr-defined]

        def append_batch(self, messages: list[Message], sharding_key: str | None) -> None:
            sizes.append(len(messages))
            self._append_batch(messages, sharding_key)

    monkeypatch.setattr(buffer, "_appender", Counting(buffer._appender))
    monkeypatch.setattr(buffer, "_limit_bytes", 1 << 30)
    for _ in range(150):
        producer.send_buffered(Message("t", b"small"))
    for _ in range(30):
        producer.send_buffered(Message("t", bytes(2_000)), sharding_key="k")
    assert producer.flush() == 180
    assert sizes == [64, 64, 22, 16, 14], "entries of a queue file, then bytes of a log file, are the limits"
    assert len(stored(store)) == 180


def test_a_body_is_taken_as_it_is_at_the_call(store: MessageStore, producer: Producer) -> None:
    body = {"total": 1}
    producer.send_buffered(Message("t", body))
    body["total"] = 2
    producer.flush()
    assert stored(store) == [b'{"total":1}']


# --- failures -------------------------------------------------------------------------------------


def test_a_message_that_can_never_be_stored_is_refused_at_once(store: MessageStore, producer: Producer) -> None:
    with pytest.raises(BodyTooLarge):
        producer.send_buffered(Message("t", bytes(2_049)))
    with pytest.raises(MessageRejected, match="belongs to the queue"):
        producer.send_buffered(Message("t", b"", properties={"UNIQ_KEY": "x"}))
    producer.send_buffered(Message("t", b"good"))
    assert producer.flush() == 1
    assert stored(store) == [b"good"]


def test_a_failed_flush_keeps_the_messages_and_a_later_one_stores_them(store: MessageStore, producer: Producer) -> None:
    for number in range(8):
        producer.send_buffered(Message("t", bytes([number]) * 1_000))
    full_disk(store)
    for _ in range(2):
        with pytest.raises(StoreFull):
            producer.flush()
        with pytest.raises(StoreFull):
            producer.send_buffered(Message("t", bytes([99]) * 1_000))  # was not taken
    free_disk(store)
    assert producer.flush() == 8
    assert [body[0] for body in stored(store)] == list(range(8))


def test_what_failed_in_the_background_is_raised_by_the_next_call_and_forgotten_after_a_success(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(SMALL, commit_interval_ms=5)
    with open_store(tmp_path, config, housekeeping=False) as store:
        producer = Producer(store, write_buffer_bytes=10_000)
        producer.create_topic("t", 1)
        full_disk(store)
        buffer = buffer_of(producer)
        producer.send_buffered(Message("t", b"kept"))
        wait_for(lambda: buffer._failure is not None, "a flush fails")
        with pytest.raises(StoreFull):
            producer.send_buffered(Message("t", b"refused"))
        assert [record.levelno for record in caplog.records if "write buffer" in record.message][:1] == [logging.ERROR]
        free_disk(store)
        wait_for(lambda: len(buffer) == 0, "a later flush succeeds")
        producer.send_buffered(Message("t", b"after"))
        producer.close()
        assert stored(store) == [b"kept", b"after"]


def test_closing_on_a_full_disk_raises_and_can_be_done_again(store: MessageStore) -> None:
    producer = Producer(store, write_buffer_bytes=10_000)
    producer.send_buffered(Message("t", b"kept"))
    full_disk(store)
    with pytest.raises(StoreFull):
        producer.close()
    free_disk(store)
    producer.close()
    assert stored(store) == [b"kept"]


def test_closing_a_poisoned_store_raises_and_closes(tmp_path: Path) -> None:
    producer = Producer(tmp_path / "store", config=NEVER_BY_ITSELF, write_buffer_bytes=10_000)
    producer.send_buffered(Message("t", b"never stored"))
    store_of(producer._backend, "a test").state.poisoned = 5
    with pytest.raises(StorePoisoned):
        producer.close()
    producer.close()
    with pytest.raises(StoreClosed):
        producer.flush()
    with open_store(tmp_path / "store", housekeeping=False) as again:
        assert stored(again) == []


def test_a_buffer_needs_a_size_and_no_durable_sends(store: MessageStore) -> None:
    with Producer(store) as producer, pytest.raises(ValueError, match="write_buffer_bytes="):
        producer.send_buffered(Message("t", b""))
    with pytest.raises(ValueError, match="write_buffer_bytes=-1"):
        Producer(store, write_buffer_bytes=-1)
    with pytest.raises(ValueError, match=r"Durability\.SYNC"):
        Producer(store.root, config=StoreConfig(durability=Durability.SYNC), write_buffer_bytes=1)


# --- forks and kills ------------------------------------------------------------------------------


def test_a_forked_child_stores_nothing_of_its_parent(store: MessageStore, producer: Producer) -> None:
    producer.send_buffered(Message("t", b"parent"))
    child = os.fork()
    if child == 0:
        try:
            producer.flush()
        except StoreClosed:
            producer.close()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert producer.flush() == 1
    assert stored(store) == [b"parent"]


SENDER = """
import itertools, sys
from dataclasses import replace
from rmqclient import Message, Producer
from tests.client.sending.test_write_buffer import SMALL
producer = Producer(sys.argv[1], config=replace(SMALL, commit_interval_ms=3), write_buffer_bytes=5_000)
for number in itertools.count():
    producer.send_buffered(Message("t", b"%d" % number))
    if number % 500 == 499:
        producer.flush()
        print(number, flush=True)
"""


@pytest.mark.crash
@pytest.mark.parametrize("lines", [1, 4, 9])
def test_a_killed_process_loses_only_the_end_of_what_it_has_not_flushed(tmp_path: Path, lines: int) -> None:
    command = [sys.executable, "-c", SENDER, str(tmp_path / "store")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [int(child.stdout.readline()) for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
    with open_store(tmp_path / "store", housekeeping=False) as store:
        numbers = [int(body) for body in stored(store)]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > said[-1]


def buffer_of(producer: Producer) -> WriteBuffer:
    assert isinstance(producer._buffer, WriteBuffer)
    return producer._buffer


def test_messages_that_are_stored_and_not_replicated_in_time_leave_the_buffer(
    producer: Producer, store: MessageStore
) -> None:
    late_replicas(store)
    producer.send_buffered(Message("t", b"one"))
    with pytest.raises(NotReplicated):
        producer.flush()
    assert stored(store) == [b"one"]
    assert producer.flush() == 0
    assert stored(store) == [b"one"]


def test_a_buffer_that_is_closed_stores_also_what_stands_behind_messages_that_are_not_replicated_in_time(
    producer: Producer, store: MessageStore
) -> None:
    late_replicas(store)
    producer.send_buffered(Message("t", b"one"))
    producer.send_buffered(Message("other", b"two"))
    with pytest.raises(NotReplicated):
        producer.close()
    assert stored(store) == [b"one"]
    assert stored(store, "other") == [b"two"]
