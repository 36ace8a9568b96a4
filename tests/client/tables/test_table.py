"""Tables: the last value of each key, caught up from the log and kept live, and what becomes of what cannot be read."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from rmqclient import Message, MessageQueue, Producer, SendResult, Table
from rmqclient.errors import BodyUnreadable, HandlerError, InvalidName, StoreClosed, StoreUnusable
from rmqclient.local.update_reader import LocalUpdateReader
from rmqclient.store import MessageStore, StoreConfig, java_hash, open_store
from rmqclient.store.bodies import Compression
from rmqclient.tables import table as table_module
from tests.client.conftest import wait_for
from tests.support.written import SMALL, forget_oldest

TOPIC = "prices"
QUEUE = MessageQueue(TOPIC, 0)
LONG_S = 20.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Open a store of small files, so that everything here passes from one to the next."""
    with open_store(tmp_path / "store", replace(SMALL, default_queue_count=1), housekeeping=False) as opened:
        yield opened


@pytest.fixture
def producer(store: MessageStore) -> Iterator[Producer]:
    with Producer(store) as made:
        yield made


def put(producer: Producer, key: str, value: object, sharding_key: str | None = None) -> SendResult:
    return producer.send(Message(TOPIC, value, keys=key), sharding_key)


def in_log_order(store: MessageStore) -> dict[str, bytes]:
    """Return what a dict holds after every message, in the order of the log."""
    messages = [
        store.messages.at(queue, offset)
        for queue in store.topics.queues(TOPIC)
        for offset in range(store.topics.min_offset(queue), store.topics.max_offset(queue))
    ]
    values: dict[str, bytes] = {}
    for message in sorted(messages, key=lambda each: each.commit_log_offset):
        if message.body:
            values[message.keys[0]] = message.body
        else:
            values.pop(message.keys[0], None)
    return values


def send_at_random(producer: Producer, seed: int, count: int) -> None:
    """Send updates of 40 keys, some of which delete, without a thought for queues."""
    chosen = random.Random(seed)
    for number in range(count):
        body = b"" if chosen.random() < 0.1 else b"%d of %d " % (number, seed) * chosen.randrange(1, 40)
        put(producer, f"key-{chosen.randrange(40)}", body)


# --- what is in it ------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("G42")
def test_the_last_value_of_each_key_is_there_and_an_empty_one_deletes(store: MessageStore, producer: Producer) -> None:
    put(producer, "AAPL", b"1")
    put(producer, "MSFT", b"2")
    put(producer, "AAPL", b"3")
    producer.send(Message(TOPIC, b"of several keys the first one counts", keys=["IBM", "AAPL"]))
    producer.send(Message(TOPIC, b"says nothing"))
    with Table(store, TOPIC) as prices:
        assert dict(prices) == {"AAPL": b"3", "MSFT": b"2", "IBM": b"of several keys the first one counts"}
        assert (len(prices), prices["AAPL"], prices.get("XYZ"), "MSFT" in prices) == (3, b"3", None, True)
        assert (prices.without_key, prices.lost, prices.positions) == (1, 0, {QUEUE: 5})
        # and it goes on
        prices.wait_for(put(producer, "MSFT", b""), LONG_S)
        assert "MSFT" not in prices
        prices.wait_for(put(producer, "MSFT", b"4"), LONG_S)
        assert prices["MSFT"] == b"4"
        with pytest.raises(KeyError):
            prices["XYZ"]


@pytest.mark.guarantee("G42")
@pytest.mark.parametrize("queues", [1, 3])
def test_a_table_equals_a_dict_that_was_given_the_same_messages(
    store: MessageStore, producer: Producer, queues: int
) -> None:
    # Given messages whose keys come in any queue
    producer.create_topic(TOPIC, queues)
    send_at_random(producer, 1, 700)
    # When a table has caught up, and goes on while three threads send
    with Table(store, TOPIC) as prices, Table(store, TOPIC, wait=False) as another:
        assert dict(prices) == in_log_order(store)
        senders = [threading.Thread(target=send_at_random, args=(producer, seed, 400)) for seed in (2, 3, 4)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        # Then it is at every end what the log says, and so is one that caught up meanwhile
        for queue in range(queues):
            last = put(producer, f"last-of-{queue}", b"x", chosen_key(queue, queues))
            prices.wait_for(last, LONG_S)
            another.wait_for(last, LONG_S)
        assert dict(prices) == dict(another) == in_log_order(store)
        assert prices.lost == 0


def chosen_key(queue: int, queues: int) -> str:
    """Return a sharding key that leads to a queue."""
    return next(str(number) for number in range(100) if abs(java_hash(str(number))) % queues == queue)


@pytest.mark.guarantee("G42")
@pytest.mark.parametrize("newer", [b"new", b""])
def test_an_older_message_of_another_queue_replaces_nothing(
    store: MessageStore, producer: Producer, newer: bytes
) -> None:
    producer.create_topic(TOPIC, 2)
    first, second = chosen_key(0, 2), chosen_key(1, 2)
    put(producer, "A", b"old", second)
    put(producer, "A", newer, first)  # whose queue is read first
    with Table(store, TOPIC) as prices:
        assert prices.get("A", b"") == newer


@pytest.mark.guarantee("G42")
def test_an_older_message_that_is_met_a_look_later_replaces_nothing(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a look that knew the end of the second queue before, and that of the first one after both messages came
    producer.create_topic(TOPIC, 2)
    put(producer, "A", b"old", chosen_key(1, 2))
    put(producer, "A", b"new", chosen_key(0, 2))
    max_offset, looks = store.topics.max_offset, []

    def as_of_then(queue: MessageQueue) -> int:
        if queue.queue_id == 1:
            looks.append(queue)
            return 0 if len(looks) == 1 else max_offset(queue)
        return max_offset(queue)

    monkeypatch.setattr(store.topics, "max_offset", as_of_then)
    # When the second look brings the older one
    with Table(store, TOPIC) as prices:
        wait_for(lambda: prices.positions[MessageQueue(TOPIC, 1)] == 1, "the second look")
        # Then the newer one stays
        assert prices["A"] == b"new"


def test_a_table_of_a_topic_that_is_not_there_yet_is_empty(store: MessageStore, producer: Producer) -> None:
    with Table(store, TOPIC) as prices:
        assert len(prices) == 0
        prices.wait_for(put(producer, "A", b"1"), LONG_S)
        assert dict(prices) == {"A": b"1"}


def test_it_sleeps_until_a_sender_wakes_it(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "LONGEST_SLEEP_S", 3_600.0)
    with Table(store, TOPIC) as prices:
        for number in range(20):
            prices.wait_for(put(producer, "A", b"%d" % number), LONG_S)
            assert prices["A"] == b"%d" % number


# --- values -------------------------------------------------------------------------------------------------------


@dataclass
class Quote:
    bid: float
    ask: float


class Price(msgspec.Struct):
    bid: float
    ask: float = 2.0


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (bytes, b'{"bid":1.0,"ask":2.0}'),
        (str, '{"bid":1.0,"ask":2.0}'),
        (Quote, Quote(1.0, 2.0)),
        (Price, Price(1.0)),
        (dict[str, float], {"bid": 1.0, "ask": 2.0}),
        (Any, {"bid": 1.0, "ask": 2.0}),
    ],
)
def test_values_are_decoded_as_bodies_are_for_handlers(
    store: MessageStore, producer: Producer, value_type: Any, value: object
) -> None:
    put(producer, "AAPL", Quote(1.0, 2.0))
    with Table(store, TOPIC, value_type=value_type) as prices:
        assert prices["AAPL"] == value
        assert prices["AAPL"] is not prices["AAPL"] or value_type is bytes, "each caller has its own"
        assert prices.stored("AAPL") == b'{"bid":1.0,"ask":2.0}'
        assert list(prices.items()) == [("AAPL", value)]


def test_a_body_that_is_no_value_of_its_type_is_an_error_of_its_key_alone(
    store: MessageStore, producer: Producer
) -> None:
    put(producer, "good", Quote(1.0, 2.0))
    put(producer, "bad", b"{")
    with Table(store, TOPIC, value_type=Quote) as prices:
        assert prices["good"] == Quote(1.0, 2.0)
        assert "bad" in prices
        with pytest.raises(BodyUnreadable, match="'bad' of topic 'prices' is not a Quote"):
            prices["bad"]
        assert prices.stored("bad") == b"{"
        prices.wait_for(put(producer, "bad", Quote(3.0, 4.0)), LONG_S)
        assert prices["bad"] == Quote(3.0, 4.0)


def test_a_type_that_nothing_can_be_decoded_into_is_refused_at_once(store: MessageStore) -> None:
    with pytest.raises(HandlerError, match="no body can be decoded into it"):
        Table(store, TOPIC, value_type=threading.Thread)
    with pytest.raises(InvalidName):
        Table(store, "a b")


# --- what is looked at while it changes ---------------------------------------------------------------------------


def test_iteration_goes_through_the_table_as_it_was(store: MessageStore, producer: Producer) -> None:
    for number in range(50):
        put(producer, f"k{number}", b"1")
    with Table(store, TOPIC) as prices:
        keys, items, values, snapshot = iter(prices), iter(prices.items()), iter(prices.values()), prices.snapshot()
        next(keys), next(items), next(values)
        for number in range(40):
            put(producer, f"k{number}", b"")
        prices.wait_for(put(producer, "later", b"2"), LONG_S)
        assert len(list(keys)) == len(list(items)) == len(list(values)) == 49
        assert (len(snapshot), snapshot["k0"], len(prices)) == (50, b"1", 11)


def test_changes_are_told_after_they_were_made(store: MessageStore, producer: Producer) -> None:
    put(producer, "before", b"1")
    seen: list[tuple[str, bytes | None]] = []

    def note(keys: set[str]) -> None:
        seen.extend((key, prices.get(key)) for key in keys)
        if "bad" in keys:
            raise ValueError("what the application raises is logged")

    with Table(store, TOPIC, on_change=note) as prices:
        for key, value in [("A", b"1"), ("bad", b"2"), ("A", b"")]:
            prices.wait_for(put(producer, key, value), LONG_S)
        wait_for(lambda: len(seen) == 3, "all changes are told")
    assert [key for key, _ in seen] == ["A", "bad", "A"]
    assert seen[-1] == ("A", None)


# --- what cannot be read ------------------------------------------------------------------------------------------


def test_a_damaged_message_is_stepped_over_and_counted(
    store: MessageStore, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    for value in (b"1", b"2"):
        put(producer, "A", value)
    put(producer, "B", b"3")
    damaged = store.messages.at(QUEUE, 1)
    with store.log_files.path(0).open("r+b") as file:
        file.seek(damaged.commit_log_offset + damaged.size - 3)
        file.write(b"\xff\xff")
    with Table(store, TOPIC) as prices:
        assert (dict(prices), prices.lost) == ({"A": b"1", "B": b"3"}, 1)
    assert "message 1 of" in caplog.text


def test_a_table_begins_with_what_retention_has_left(store: MessageStore, producer: Producer) -> None:
    for number in range(200):
        put(producer, f"k{number}", b"%d" % number * 300)
    forget_oldest(store)
    begin = store.topics.min_offset(QUEUE)
    assert begin > 0
    with Table(store, TOPIC) as prices:
        assert (sorted(prices), prices.lost) == (sorted(f"k{number}" for number in range(begin, 200)), 0)


def test_messages_that_retention_removed_before_they_were_read_are_counted(
    store: MessageStore, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a reader that stands where retention has removed files
    for number in range(200):
        put(producer, f"k{number}", b"%d" % number * 300)
    forget_oldest(store)
    begin = store.topics.min_offset(QUEUE)
    # When it goes on
    updates = list(LocalUpdateReader(store).read(QUEUE, 1, 200))
    # Then it tells how many are missing, and has all the others
    assert sum(each.lost for each in updates) == begin - 1
    assert [key for each in updates for key in each.keys] == [f"k{number}" for number in range(begin, 200)]
    assert f"messages 1 to {begin - 1} of" in caplog.text


def test_a_file_that_was_removed_is_let_go_of(store: MessageStore, producer: Producer) -> None:
    for number in range(100):
        put(producer, f"k{number}", b"%d" % number * 300)
    with Table(store, TOPIC) as prices:
        forget_oldest(store)
        prices.wait_for(put(producer, "later", b"1"), LONG_S)
        wait_for(lambda: " (deleted)" not in mappings(store.root / "commitlog"), "no removed file is mapped")
        assert len(prices) == 101


def test_a_file_that_is_removed_while_a_table_begins_is_no_error(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(producer, "A", b"1")
    glob = Path.glob
    removed = store.root / "commitlog" / f"{9:020d}"
    monkeypatch.setattr(Path, "glob", lambda path, pattern: [*glob(path, pattern), removed])
    with Table(store, TOPIC) as prices:
        assert dict(prices) == {"A": b"1"}


def mappings(directory: Path) -> str:
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if str(directory) in line)


# --- waiting, ending ----------------------------------------------------------------------------------------------


def test_waiting_has_an_end(store: MessageStore, producer: Producer) -> None:
    sent = put(producer, "A", b"1")
    with Table(store, TOPIC) as prices:
        with pytest.raises(TimeoutError, match="has not come to SendResult"):
            prices.wait_for(behind(sent), 0.01)
        with pytest.raises(ValueError, match="does not stand in topic 'prices'"):
            prices.wait_for(producer.send(Message(TOPIC, b"", keys="A"), delay_level=1))
        with pytest.raises(ValueError, match="does not stand in topic 'prices'"):
            prices.wait_for(producer.send(Message("other", b"")))


def test_after_its_end_it_refuses(tmp_path: Path, store: MessageStore, producer: Producer) -> None:
    put(producer, "A", b"1")
    prices = Table(tmp_path / "store", TOPIC)
    threads = threading.active_count()
    prices.close()
    prices.close()
    assert threading.active_count() < threads
    for use in (lambda: prices["A"], lambda: len(prices), lambda: list(prices), lambda: prices.positions):
        with pytest.raises(StoreClosed, match="was closed"):
            use()


def test_who_waits_hears_that_the_store_was_closed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", SMALL)
    with Producer(store) as producer:
        sent = producer.send(Message("other", b""))
    prices = Table(store, "other")
    prices.wait_for(sent, LONG_S)
    store.close()
    with pytest.raises(StoreClosed):
        prices.wait_for(behind(sent), LONG_S)
    prices.close()


def behind(sent: SendResult) -> SendResult:
    """Return where a message would stand that comes next."""
    make, fields = cast("tuple[Callable[..., SendResult], tuple[Any, ...]]", sent.__reduce__())
    queue, queue_offset, *others = fields
    return make(queue, queue_offset + 1, *others)


def test_a_forked_child_is_refused(store: MessageStore, producer: Producer) -> None:
    put(producer, "A", b"1")
    with Table(store, TOPIC) as prices:
        child = os.fork()
        if child == 0:
            try:
                prices["A"]
            except StoreClosed as error:
                prices.close()
                os._exit(7 if "forked from" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert prices["A"] == b"1"


def test_no_store_is_made_by_who_only_reads(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable):
        Table(tmp_path / "nothing", TOPIC)
    assert not (tmp_path / "nothing").exists()


# --- compressed bodies, and batches -------------------------------------------------------------------------------


@pytest.mark.guarantee("G42")
def test_compressed_bodies_and_batches_are_opened(store: MessageStore) -> None:
    with Producer(store, compression=Compression.ZSTD, compress_over_bytes=10) as producer, Table(store, TOPIC) as live:
        put(producer, "A", b"a" * 500)
        put(producer, "B", b"b" * 500)
        updates = [Message(TOPIC, b"%d" % number * 50, keys=f"k{number % 30}") for number in range(90)]
        updates[70] = Message(TOPIC, b"", keys="B")
        producer.send_batch(updates, compression=Compression.ZSTD)
        expected = {"A": b"a" * 500} | {f"k{number % 30}": b"%d" % number * 50 for number in range(90) if number != 70}
        live.wait_for(put(producer, "last", b"x"), LONG_S)
        with Table(store, TOPIC) as prices:
            assert dict(prices) == dict(live) == expected | {"last": b"x"}
            assert (prices.lost, live.lost) == (0, 0)


def test_what_opens_to_too_much_is_an_error_of_its_key_and_a_batch_is_stepped_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(tmp_path / "store", compression=Compression.ZLIB, compress_over_bytes=10) as producer:
        for key, value in (("big", b"1" * 400), ("big", b"2" * 5_000), ("small", b"3" * 400)):
            put(producer, key, value, "one queue")
        producer.send_batch(
            [Message(TOPIC, b"4" * 900, keys=f"k{number}") for number in range(9)], compression=Compression.ZSTD
        )
    with (
        open_store(tmp_path / "store", StoreConfig(max_opened_body_bytes=4_096)) as store,
        Table(store, TOPIC) as prices,
    ):
        assert sorted(prices) == ["big", "small"]
        assert prices["small"] == b"3" * 400
        with pytest.raises(BodyUnreadable, match="'big' of topic 'prices' cannot be read"):
            prices["big"]
        assert prices.lost == 1
    assert "cannot be opened; the table stepped over it" in caplog.text


# --- compact topics -----------------------------------------------------------------------------------------------


@pytest.mark.guarantee("G42")
def test_a_table_of_a_compact_topic_knows_keys_whose_log_files_were_removed(
    store: MessageStore, producer: Producer
) -> None:
    # Given a compact topic of which most of the log was removed
    producer.create_topic(TOPIC, 2, cleanup_policy="compact")
    send_at_random(producer, 1, 300)
    put(producer, "rare", b"told once")
    send_at_random(producer, 2, 300)
    expected = in_log_order(store)
    with Table(store, TOPIC) as before:
        forget_oldest(store)
        assert min(map(store.compaction.log_low, store.topics.queues(TOPIC))) > 100
        # When a table is made now, and both go on
        with Table(store, TOPIC) as prices:
            # Then it is the same as before
            assert dict(prices) == dict(before) == expected
            assert (prices["rare"], prices.lost, before.lost) == (b"told once", 0, 0)
            for table in (prices, before):
                table.wait_for(put(producer, "rare", b"again"), LONG_S)
                assert table["rare"] == b"again"
            forget_oldest(store)
            prices.wait_for(put(producer, "rare", b""), LONG_S)
            assert "rare" not in prices


def test_a_reader_that_retention_has_passed_goes_on_in_the_compacted_file(
    store: MessageStore, producer: Producer
) -> None:
    producer.create_topic(TOPIC, 1, cleanup_policy="compact")
    for number in range(300):
        put(producer, f"k{number % 30}", b"%d" % number * 100)
    forget_oldest(store)
    assert store.compaction.log_low(QUEUE) > 40
    updates = list(LocalUpdateReader(store).read(QUEUE, 40, 300))
    values = dict(pair for each in updates for pair in zip(each.keys, each.values, strict=True))
    assert values == {f"k{number % 30}": b"%d" % number * 100 for number in range(270, 300)}
    assert sum(each.lost for each in updates) == 0
    assert updates[-1].next_offset == 300
