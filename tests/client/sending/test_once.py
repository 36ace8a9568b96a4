"""Sends by key: what counts as sent before, and what does not."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rmqclient import Durability, Message, MessageQueue, Producer, StoreConfig
from rmqclient.errors import MessageRejected, StoreBusy, StoreClosed
from rmqclient.store import SCHEDULE_TOPIC, MessageStore, open_store
from rmqclient.store.files.file_lock import ONCE_BYTES, ONCE_STRIPES
from rmqclient.store.log.index_file import key_hashes
from rmqclient.store.upkeep.retention_rules import Clock
from rmqclient.store.waiting.once import Once
from tests.client.conftest import wait_for
from tests.crash.processes.order import Order
from tests.support.host.forking import ROOT
from tests.support.stores import SMALL, after_every_delay
from tests.support.stores import TOPIC as CHILDS_TOPIC

ORDER = Message("orders", b"an order", tags="new", keys=["order-17"], properties={"region": "eu"}, flag=3)
HOUR_MS = 3_600_000


def count(store: MessageStore, topic: str = "orders") -> int:
    return sum(store.topics.max_offset(queue) for queue in store.topics.queues(topic))


def test_a_topic_and_a_body_are_sent_once_as_a_message_is(store: MessageStore, producer: Producer) -> None:
    sent = [producer.send_once("orders", {"id": 7}, key="17"), producer.send_once("orders", b"other", "17")]
    assert [each.is_duplicate for each in sent] == [False, True]
    assert store.messages.at(sent[0].queue, sent[0].queue_offset).body == b'{"id":7}'
    with pytest.raises(TypeError, match="has no key"):
        producer.send_once("orders", b"")
    with pytest.raises(TypeError, match="has no body"):
        producer.send_once("orders", key="1")


@pytest.mark.guarantee("G43")
def test_a_message_is_sent_once_with_its_key(store: MessageStore, producer: Producer) -> None:
    first, second = (producer.send_once(ORDER, "17", sharding_key="N14228") for _ in range(2))
    assert (first.is_duplicate, second.is_duplicate) == (False, True)
    places = [(sent.queue, sent.queue_offset, sent.commit_log_offset, sent.commit_log_end) for sent in (first, second)]
    assert places[0] == places[1]
    assert first.message_id == second.message_id
    assert count(store) == 1
    assert "is_duplicate" in repr(second)
    assert "is_duplicate" not in repr(first)
    assert pickle.loads(pickle.dumps(second)) == second != first


def test_it_has_all_that_it_was_given_and_the_key_as_its_last_one(store: MessageStore, producer: Producer) -> None:
    sent = producer.send_once(ORDER, "17", sharding_key="N14228")
    stored = store.messages.read(sent.commit_log_offset)
    assert (stored.body, stored.tags, stored.flag, stored.sharding_key) == (b"an order", "new", 3, "N14228")
    assert stored.keys == ("order-17", "once-17")
    assert stored.properties["region"] == "eu"
    assert ORDER.keys == ("order-17",)


def test_another_key_another_topic_and_the_other_keys_of_messages_are_no_duplicates(
    store: MessageStore, producer: Producer
) -> None:
    producer.send(Message("orders", b"", keys=["17", "order-17"]))
    for topic, key in (("orders", "17"), ("orders", "order-17"), ("orders", "18"), ("returns", "17"), ("orders", "1")):
        assert not producer.send_once(Message(topic, b""), key).is_duplicate
    assert (count(store), count(store, "returns")) == (5, 1)


@pytest.mark.guarantee("G43")
def test_keys_with_one_hash_are_told_apart(store: MessageStore, producer: Producer) -> None:
    # Java's hash of "Aa" and of "BB" is the same
    places = [producer.send_once(Message("orders", b""), key).commit_log_offset for key in ("Aa", "BB", "AaBB", "BBAa")]
    assert len({hashed for place in places[:2] for hashed in key_hashes(store.messages.read(place))}) == 3
    assert len(set(places)) == 4
    again = [producer.send_once(Message("orders", b""), key) for key in ("Aa", "BB", "AaBB", "BBAa")]
    assert [sent.commit_log_offset for sent in again] == places


@pytest.mark.parametrize("key", ["a#b", "#", "clé", "訂單-17", "k" * 255, "once-17", "a,b;c=d"])
def test_a_key_may_be_anything_else_that_prints(producer: Producer, key: str) -> None:
    assert [producer.send_once(ORDER, key).is_duplicate for _ in range(2)] == [False, True]


@pytest.mark.parametrize("key", ["", "a b", "a\tb", "a\x01b", "a\x02b", "a\nb", "k" * 256, "é" * 128, "\udcff"])
def test_a_key_that_cannot_be_one_is_refused(store: MessageStore, producer: Producer, key: str) -> None:
    producer.create_topic("orders", 1)
    with pytest.raises(MessageRejected, match="give 1 to 255 bytes"):
        producer.send_once(ORDER, key)
    assert count(store) == 0


def test_a_key_that_is_no_text_is_refused(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("orders", 1)
    with pytest.raises(TypeError, match="17"):
        producer.send_once(ORDER, key=17)  # type: ignore[arg-type]
    assert count(store) == 0


# --- how long ago ---------------------------------------------------------------------------------


def test_what_was_sent_before_the_window_is_sent_again(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = timedelta(hours=1)
    first = producer.send_once(ORDER, "17", within=window)
    now = store.once.now_ms()
    monkeypatch.setattr(store.once, "now_ms", lambda: now + HOUR_MS - 60_000)
    assert producer.send_once(ORDER, "17", within=window) != first
    assert producer.send_once(ORDER, "17", within=window).is_duplicate
    monkeypatch.setattr(store.once, "now_ms", lambda: now + HOUR_MS + 60_000)
    second = producer.send_once(ORDER, "17", within=window)
    assert not second.is_duplicate
    assert producer.send_once(ORDER, "17").commit_log_offset == second.commit_log_offset
    assert count(store) == 2


@pytest.mark.parametrize("within", [timedelta(), timedelta(seconds=-1), timedelta(hours=72, seconds=1)])
def test_a_window_that_the_store_cannot_keep_is_refused(producer: Producer, within: timedelta) -> None:
    with pytest.raises(ValueError, match="72 hours"):
        producer.send_once(ORDER, "17", within=within)
    assert not producer.send_once(ORDER, "17", within=timedelta(hours=72)).is_duplicate


class _SetClock(Clock):
    """A wall clock that somebody sets."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def test_a_clock_that_is_set_shortens_no_window(store: MessageStore, producer: Producer) -> None:
    clock = _SetClock()
    once = Once(
        replace(store, config=replace(store.config, lock_timeout_ms=1_000)),
        store.index_files,
        settle=store.appenders.settle,
        build_index=store.index.catch_up,
        clock=clock,
    )
    sent = producer.send_once(ORDER, "17")
    for clock.ahead_ms in (0, 24 * HOUR_MS, -24 * HOUR_MS):
        found = once.find("orders", "17", timedelta(minutes=1))
        assert found is not None
        assert found.commit_log_offset == sent.commit_log_offset


# --- where it may be ------------------------------------------------------------------------------


@pytest.mark.guarantee("G43")
def test_what_waits_in_a_delay_level_was_sent_and_so_was_what_came_from_there(
    store: MessageStore, producer: Producer
) -> None:
    first = producer.send_once(ORDER, "17", delay_level=18)
    assert first.queue == MessageQueue(SCHEDULE_TOPIC, 17)
    waiting = producer.send_once(ORDER, "17")
    assert (waiting.is_duplicate, waiting.commit_log_offset) == (True, first.commit_log_offset)
    assert not producer.send_once(Message("returns", b""), "17").is_duplicate
    store.schedule.now_ms = after_every_delay
    wait_for(lambda: count(store) or store.schedule.look(), "the message is delivered")
    delivered = producer.send_once(ORDER, "17", delay_level=1)
    assert (delivered.is_duplicate, delivered.queue.topic) == (True, "orders")
    assert delivered.message_id == first.message_id


@pytest.mark.guarantee("G43")
@pytest.mark.parametrize("lost", ["nothing", "index", "shared", "newest", "never made"])
def test_it_is_found_after_a_restart_also_without_the_index(tmp_path: Path, lost: str) -> None:
    root = tmp_path / "store"
    config = replace(SMALL, message_index=lost != "never made")
    with Producer(root, config=config) as producer:
        sent = [producer.send_once(ORDER, str(number)) for number in range(50)]
    if lost == "index":
        shutil.rmtree(root / "index")
    elif lost == "shared":
        (root / "shared").unlink()
    elif lost == "newest":
        max((root / "index").iterdir()).unlink()
    with Producer(root, config=config) as producer:
        again = [producer.send_once(ORDER, str(number)) for number in range(50)]
    assert {result.is_duplicate for result in again} == {True}
    assert [result.commit_log_offset for result in again] == [result.commit_log_offset for result in sent]


def test_a_damaged_message_is_sent_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with Producer(root, config=SMALL) as producer:
        sent = producer.send_once(ORDER, "17")
        with (root / "commitlog" / f"{0:020d}").open("r+b") as log:
            log.seek(sent.commit_log_offset + 100)
            log.write(b"\xff\xff\xff")
        assert not producer.send_once(ORDER, "17").is_duplicate


@pytest.mark.guarantee("G43")
def test_a_duplicate_is_on_the_disk_before_it_is_told_of(tmp_path: Path) -> None:
    config = StoreConfig(durability=Durability.SYNC)
    with (
        open_store(tmp_path / "store", housekeeping=False) as store,
        Producer(store) as quick,
        Producer(store, config=config) as durable,
    ):
        first = quick.send_once(ORDER, "17")
        assert store.state.flushed_to < first.commit_log_end
        assert quick.send_once(ORDER, "17").is_duplicate
        assert store.state.flushed_to < first.commit_log_end
        assert durable.send_once(ORDER, "17").is_duplicate
        assert store.state.flushed_to >= first.commit_log_end


# --- many senders ---------------------------------------------------------------------------------


@pytest.mark.guarantee("G43")
def test_of_the_threads_of_several_processes_one_sends(tmp_path: Path) -> None:
    root, keys = tmp_path / "store", 60
    orders = [
        Order(scenario="send_once", root=str(root), notes=str(tmp_path / f"notes {number}"), rounds=keys)
        for number in range(2)
    ]
    with open_store(root, SMALL) as store, Producer(store) as producer:
        producer.create_topic(CHILDS_TOPIC, 1)
        children = [
            subprocess.Popen([sys.executable, "-m", "tests.crash.processes.child", order.text()], cwd=ROOT)
            for order in orders
        ]

        def send(_: int) -> list[tuple[int, bool, int]]:
            sent = [producer.send_once(Message(CHILDS_TOPIC, b""), f"key-{number}") for number in range(keys)]
            return [(number, result.is_duplicate, result.commit_log_offset) for number, result in enumerate(sent)]

        with ThreadPoolExecutor(3) as threads:
            results = [result for part in threads.map(send, range(3)) for result in part]
        assert [child.wait(60) for child in children] == [0, 0]
        for order in orders:
            for line in Path(order.notes).read_text(encoding="ascii").splitlines():
                number, is_duplicate, place = json.loads(f"[{line.replace(' ', ',')}]")
                results.append((number, bool(is_duplicate), place))
        assert len(results) == 5 * keys
        assert Counter(number for number, is_duplicate, _ in results if not is_duplicate) == Counter(range(keys))
        assert len({(number, place) for number, _, place in results}) == keys
        assert count(store, CHILDS_TOPIC) == keys


def test_a_sender_that_is_stopped_makes_others_of_its_key_wait_and_writes_nothing(tmp_path: Path) -> None:
    config = StoreConfig(lock_timeout_ms=100)
    with (
        open_store(tmp_path / "store", config) as store,
        open_store(tmp_path / "store") as other,
        Producer(store) as producer,
        other.once.alone("orders", "17"),
    ):
        with pytest.raises(StoreBusy, match="keys of number"):
            producer.send_once(ORDER, "17")
        assert not producer.send_once(ORDER, "18").is_duplicate
    assert ONCE_BYTES + ONCE_STRIPES < 1 << 14


def test_a_closed_producer_or_store_sends_nothing_and_finds_nothing(store: MessageStore) -> None:
    producer = Producer(store)
    producer.send_once(ORDER, "17")
    producer.close()
    with pytest.raises(StoreClosed):
        producer.send_once(ORDER, "17")
    with Producer(store) as another:
        store.close()
        with pytest.raises(StoreClosed):
            another.send_once(ORDER, "17")


def test_the_store_is_closed_when_those_who_send_have_sent(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    closing = threading.Thread(target=store.close)
    with store.once.alone("orders", "17"):
        closing.start()
        closing.join(0.1)
        assert closing.is_alive()
        assert store.lock.try_shared(0), "raises StoreClosed when its locks are gone"
    closing.join(10)
    assert not closing.is_alive()
