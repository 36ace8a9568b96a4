"""Transactions: what is stored, byte for byte as a broker does it, who may decide, and what a check does."""

from __future__ import annotations

import logging
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqclient.store import Message, MessageQueue, MessageStore, ReceivedMessage, open_store
from rmqclient.store.config import TransactionConfig
from rmqclient.store.errors import MessageRejected, PropertiesTooLarge, TransactionDecided
from rmqclient.store.kernel._kernel import GIVEN_UP_TOPIC, HALF_TOPIC, OPERATION_TOPIC, Appender
from rmqclient.store.settings import config_file
from rmqclient.store.waiting.half_messages import GIVEN_UP_QUEUE, HALF_QUEUE, OPERATION_QUEUE, checks_of, decided_by
from rmqclient.store.waiting.transaction_log import GROUP
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.oracle.views import power_cut_image
from tests.support.stores import QUEUE, SMALL, TOPIC, abandon, appender_of

GOLDEN = Path(__file__).parents[2] / "compat" / "golden" / "store-4.9.8-broker-tx-retry-dlq.tgz"
HALF_AT, COMMIT_AT, OPERATION_AT, RENEWED_AT, RENEWED_AGAIN_AT, GIVEN_UP_AT = 1026, 1248, 1452, 2166, 2414, 2662
"""Where the records of the three transactions stand in the golden store."""

MINUTE_MS = 60_000
CENTURY_H = 100 * 365 * 24


class Clock:
    """A wall clock that a test sets."""

    def __init__(self, store: MessageStore) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        store.transactions.now_ms = lambda: self.now_ms


def half_of(store: MessageStore, appender: Appender, body: bytes, immunity_s: int = 0) -> ReceivedMessage:
    """Begin a transaction; return its half message."""
    sent = appender.append_half(Message(TOPIC, body, tags="TagT"), "PG", immunity_s=immunity_s)
    return store.messages.read(sent.commit_log_offset)


def bodies(store: MessageStore, queue: MessageQueue = QUEUE) -> list[bytes]:
    if queue not in store.topics.all_queues():
        return []
    return [store.messages.at(queue, number).body for number in range(store.topics.max_offset(queue))]


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return [message.queue_offset for message in messages]


# --- the bytes of a broker ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(directory, filter="data")
    (root,) = directory.iterdir()
    return root


@pytest.fixture
def cut(golden: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MessageStore]:
    """The broker's store as it was before one of its records, open here."""
    image = power_cut_image(golden, tmp_path / "image", request.param, 65_536)
    config_file.write_consumer_offsets(image, {(HALF_TOPIC, GROUP): {0: 0}, (OPERATION_TOPIC, GROUP): {0: 0}})
    (image / "abort").touch()
    config = replace(
        SMALL,
        commit_log_file_bytes=65_536,
        index_slots=64,
        index_entries=64,
        transactions=TransactionConfig(check_max=2),
        retention=replace(SMALL.retention, file_reserved_hours=CENTURY_H),  # the broker's messages grow older each day
    )
    with open_store(image, config, housekeeping=False) as opened:
        yield opened


def records(root: Path) -> dict[int, ReferenceRecord]:
    return dict(reference.read_commit_log(root))


def stripped(record: ReferenceRecord, **changed: object) -> ReferenceRecord:
    """Take away what no two stores have the same: where the record stands, when it was stored, and our CRC."""
    properties = record.properties.rstrip(b"\x02")
    return replace(record, properties=properties, commit_log_offset=0, store_timestamp=0, **changed)  # type: ignore[arg-type]


@pytest.mark.guarantee("G31")
def test_a_half_message_has_the_bytes_of_a_brokers(golden: Path, store: MessageStore) -> None:
    theirs = records(golden)[HALF_AT]
    store.topics.create("TopicA", 4)
    appender = appender_of(store)
    message = Message("TopicA", b"tx0", tags="TagT", flag=7)
    sent = [appender.append_half(message, "PG") for _ in range(4)]  # one of them for each queue
    at = {store.messages.read(each.commit_log_offset).properties["REAL_QID"]: each for each in sent}
    ours = records(store.root)[at["3"].commit_log_offset]
    key = at["3"].message_id.encode()
    ours = replace(ours, properties=ours.properties.replace(key, b"7F000001000000000000000000000001"))
    differing = {"queue_offset": 0, "born_timestamp": 0, "born_host": b"", "born_port": 0}
    assert stripped(ours, **differing) == stripped(theirs, **differing)


@pytest.mark.guarantee("G31")
@pytest.mark.parametrize("cut", [COMMIT_AT], indirect=True)
def test_a_committed_message_and_its_operation_have_the_bytes_of_a_brokers(golden: Path, cut: MessageStore) -> None:
    (half,) = cut.transactions.pending()
    sent = cut.transactions.decide(half, commit=True)
    theirs, ours = records(golden), records(cut.root)
    assert sent.commit_log_offset == COMMIT_AT
    assert stripped(ours[COMMIT_AT]) == stripped(theirs[COMMIT_AT])
    assert ours[COMMIT_AT].prepared_transaction_offset == HALF_AT
    operation = ours[COMMIT_AT + ours[COMMIT_AT].size]
    assert stripped(operation, born_timestamp=0) == stripped(theirs[OPERATION_AT], born_timestamp=0)


@pytest.mark.guarantee("G32")
@pytest.mark.parametrize("cut", [RENEWED_AT], indirect=True)
def test_renewals_and_what_is_given_up_have_the_bytes_of_a_brokers(golden: Path, cut: MessageStore) -> None:
    clock = Clock(cut)
    clock.now_ms = cut.transactions.pending()[0].store_timestamp
    for _ in range(3):
        clock.now_ms += MINUTE_MS
        cut.transactions.check()
        # Our clock is later than the broker's was: what is stored now is older than the round that comes next
        clock.now_ms = max(clock.now_ms, time.time_ns() // 1_000_000)
    theirs = records(golden)
    ours = [record for offset, record in records(cut.root).items() if offset >= RENEWED_AT]
    assert [stripped(record) for record in ours] == [
        stripped(theirs[offset]) for offset in (RENEWED_AT, RENEWED_AGAIN_AT, GIVEN_UP_AT)
    ]


@pytest.mark.guarantee("G31")
def test_the_decisions_of_a_broker_are_known(golden: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(golden, tmp_path / "copy"))
    with open_store(root, create=False, housekeeping=False) as store:
        assert store.transactions.pending() == []
        (given_up,) = store.transactions.given_up()
        assert given_up.body == b"tx2"
        for number, committed in ((0, True), (1, False)):
            with pytest.raises(TransactionDecided) as raised:
                store.transactions.decide(store.messages.at(HALF_QUEUE, number), commit=True)
            assert raised.value.committed is committed
        # One that was given up there can be decided here, by any of its half messages
        store.transactions.decide(store.messages.at(HALF_QUEUE, 2), commit=True)
        assert store.transactions.given_up() == []
        assert [message.body for message in tail(store, MessageQueue("TopicA", 3))] == [b"tx0", b"tx2"]


def tail(store: MessageStore, queue: MessageQueue) -> list[ReceivedMessage]:
    return [store.messages.at(queue, number) for number in range(store.topics.max_offset(queue))]


# --- deciding -------------------------------------------------------------------------------------


@pytest.mark.guarantee("G31")
def test_a_message_is_seen_when_it_is_committed_and_not_before(store: MessageStore, appender: Appender) -> None:
    halves = [half_of(store, appender, b"%d" % number) for number in range(3)]
    assert bodies(store) == []
    store.transactions.decide(halves[2], commit=True)
    store.transactions.decide(halves[1], commit=False)
    assert bodies(store) == [b"2"]
    assert numbers(store.transactions.pending()) == [0]
    assert store.messages.by_id(halves[2].message_id).topic == TOPIC  # type: ignore[union-attr]


@pytest.mark.guarantee("G31")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("then", [True, False])
def test_a_transaction_is_decided_once(store: MessageStore, appender: Appender, first: bool, then: bool) -> None:
    half = half_of(store, appender, b"a")
    store.transactions.decide(half, commit=first)
    with open_store(store.root, housekeeping=False) as other:
        for each in (store, other):
            with pytest.raises(TransactionDecided) as raised:
                each.transactions.decide(half, commit=then)
            assert raised.value.committed is first
    assert bodies(store) == [b"a"] * first


@pytest.mark.guarantee("G31")
def test_of_many_who_decide_at_once_one_does(store: MessageStore, appender: Appender) -> None:
    halves = [half_of(store, appender, b"%d" % number) for number in range(60)]
    decided: list[tuple[int, bool]] = []

    def decide(handle: MessageStore, commit: bool) -> None:
        for half in halves:
            try:
                handle.transactions.decide(half, commit=commit)
            except TransactionDecided:
                continue
            decided.append((half.queue_offset, commit))

    with open_store(store.root, housekeeping=False) as other, open_store(store.root, housekeeping=False) as third:
        threads = [
            threading.Thread(target=decide, args=(handle, commit))
            for handle, commit in ((store, True), (other, False), (third, True), (other, True))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(number for number, _ in decided) == list(range(60))
    assert sorted(map(int, bodies(store))) == sorted(number for number, commit in decided if commit)
    assert store.topics.max_offset(OPERATION_QUEUE) == 60


def meanwhile(store: MessageStore, does: Callable[[], object]) -> None:
    """Let something happen once between reading the state of the log and the append that goes by it."""
    log = store.transactions._log
    read_on = log.read_on

    def read_on_and_be_late() -> Any:
        state = read_on()
        log.read_on = read_on  # type: ignore[method-assign]
        does()
        return state

    log.read_on = read_on_and_be_late  # type: ignore[method-assign]


@pytest.mark.guarantee("G31")
def test_a_decision_or_a_renewal_in_between_is_noticed(store: MessageStore, appender: Appender) -> None:
    first, second, third = (half_of(store, appender, body) for body in (b"1", b"2", b"3"))
    with open_store(store.root, housekeeping=False) as other:
        Clock(store).now_ms += MINUTE_MS
        Clock(other).now_ms += MINUTE_MS
        store.transactions.pending()
        # Somebody else decides it
        meanwhile(store, lambda: other.transactions.decide(first, commit=True))
        with pytest.raises(TransactionDecided):
            store.transactions.decide(first, commit=True)
        # Somebody else renews it: the operation must be that of the renewal
        meanwhile(store, other.transactions.check)
        store.transactions.decide(second, commit=True)
        assert numbers(store.transactions.pending()) == [4]
        # It is decided while it is about to be renewed
        for transactions in (store.transactions, other.transactions):
            transactions.now_ms = lambda: time.time_ns() // 1_000_000 + MINUTE_MS
        transactions = store.transactions
        fate = transactions._fate

        def fate_and_be_late(half: ReceivedMessage, began_ms: int) -> Any:
            transactions._fate = fate  # type: ignore[method-assign]
            other.transactions.decide(third, commit=True)
            return fate(half, began_ms)

        transactions._fate = fate_and_be_late  # type: ignore[method-assign]
        transactions.check()
        assert transactions.pending() == []
    assert bodies(store) == [b"1", b"2", b"3"]
    assert store.topics.max_offset(HALF_QUEUE) == 5


@pytest.mark.guarantee("G31")
@pytest.mark.parametrize("commit", [True, False])
def test_who_holds_a_renewed_half_message_decides_its_renewal(
    store: MessageStore, appender: Appender, commit: bool
) -> None:
    clock = Clock(store)
    half = half_of(store, appender, b"a")
    clock.now_ms += MINUTE_MS
    store.transactions.check()
    (renewed,) = store.transactions.pending()
    assert (renewed.queue_offset, checks_of(renewed)) == (1, 1)
    store.transactions.decide(half, commit=commit)
    assert store.transactions.pending() == []
    assert store.messages.at(OPERATION_QUEUE, 0).body == b"1"
    for each in (half, renewed):
        with pytest.raises(TransactionDecided) as raised:
            store.transactions.decide(each, commit=True)
        assert raised.value.committed is commit
    assert bodies(store) == [b"a"] * commit


def test_what_belongs_to_no_queue_is_refused(store: MessageStore, appender: Appender) -> None:
    appender.append(Message(TOPIC, b"plain"))
    with pytest.raises(MessageRejected, match="names no queue"):
        store.transactions.decide(store.messages.at(QUEUE, 0), commit=True)
    with pytest.raises(MessageRejected, match="belongs to transactions"):
        appender.append(Message(HALF_TOPIC, b"forged"))
    with pytest.raises(MessageRejected, match="belongs to transactions"):
        appender.append(Message(GIVEN_UP_TOPIC, b"forged"))
    with pytest.raises(PropertiesTooLarge, match="31000"):
        appender.append_half(Message(TOPIC, b"a", properties={"long": "x" * 32_650}), "PG")


def test_what_is_no_word_of_the_runtime_file_is_refused(store: MessageStore, appender: Appender) -> None:
    half = half_of(store, appender, b"a")
    for at in (0, 4, -8, store.state.mapping.size):
        with pytest.raises(ValueError, match="not a word of the runtime file"):
            appender.decide(half, TOPIC, 0, {at: 0})
        with pytest.raises(ValueError, match="not a word of the runtime file"):
            appender.pass_half(half, HALF_TOPIC, half.properties, at, {})
    with pytest.raises(ValueError, match="3 guards: at most 2"):
        appender.decide(half, TOPIC, 0, {8: 0, 16: 0, 24: 0})
    with pytest.raises(MessageRejected, match="no queue with the id 9"):
        appender.decide(half, TOPIC, 9, {})
    assert store.topics.max_offset(HALF_QUEUE) == 1
    assert bodies(store) == []


def test_a_transaction_for_a_topic_that_was_lost_makes_it_again(store: MessageStore, appender: Appender) -> None:
    half = half_of(store, appender, b"a")
    abandon(store)
    (store.root / "shared").unlink()
    for path in (store.root / "config").glob("topics.json*"):
        path.unlink()
    with open_store(store.root, SMALL, housekeeping=False) as again:
        again.transactions.decide(half, commit=True)
        assert bodies(again) == [b"a"]


@pytest.mark.parametrize(
    ("tags", "body", "decided"),
    [
        ("d", b"7", (7,)),
        ("d", b"7,8,12", (7, 8, 12)),  # RocketMQ 5.1
        ("d", b"", ()),
        ("d", b"-1", ()),
        ("d", b"\xff", ()),
        ("other", b"7", ()),
        (None, b"7", ()),
    ],
)
def test_an_operation_decides_the_half_messages_that_it_names(
    store: MessageStore, appender: Appender, tags: str | None, body: bytes, decided: tuple[int, ...]
) -> None:
    appender.append(Message(TOPIC, body, tags=tags))
    assert decided_by(store.messages.at(QUEUE, 0)) == decided


# --- checking -------------------------------------------------------------------------------------


@pytest.mark.guarantee("G32")
def test_a_half_message_is_checked_when_it_is_old_enough(store: MessageStore, appender: Appender) -> None:
    clock = Clock(store)
    half = half_of(store, appender, b"a")
    for age, checks in ((0, 0), (5_999, 0), (6_000, 1)):
        clock.now_ms = half.born_timestamp + age
        store.transactions.check()
        assert [checks_of(each) for each in store.transactions.pending()] == [checks]


@pytest.mark.guarantee("G32")
def test_one_that_asks_for_more_time_is_put_back_and_then_checked(store: MessageStore, appender: Appender) -> None:
    clock = Clock(store)
    half = half_of(store, appender, b"a", immunity_s=100)
    other = half_of(store, appender, b"b")
    clock.now_ms = half.born_timestamp + 99_999
    store.transactions.check()
    # The one behind it need not wait for it
    (put_back, checked) = store.transactions.pending()
    assert (put_back.body, checks_of(put_back), put_back.properties["TRAN_PREPARED_QUEUE_OFFSET"]) == (b"a", 0, "0")
    assert (checked.body, checks_of(checked)) == (b"b", 1)
    clock.now_ms = half.born_timestamp + 100_000
    store.transactions.check()
    assert [checks_of(each) for each in store.transactions.pending()] == [1, 2]
    store.transactions.decide(half, commit=True)
    store.transactions.decide(other, commit=True)
    assert bodies(store) == [b"a", b"b"]


@pytest.mark.guarantee("G32")
def test_after_the_last_check_it_is_given_up_and_a_person_can_still_decide(
    store: MessageStore, appender: Appender, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(store)
    halves = [half_of(store, appender, b"%d" % number) for number in range(3)]
    store.transactions.decide(halves[1], commit=True)
    for checks in range(1, 16):
        clock.now_ms += MINUTE_MS
        store.transactions.check()
        assert [checks_of(each) for each in store.transactions.pending()] == [checks, checks]
    clock.now_ms += MINUTE_MS
    store.transactions.check()
    assert store.transactions.pending() == []
    assert [copy.body for copy in store.transactions.given_up()] == [b"0", b"2"]
    assert caplog.messages[-1].startswith(f"message {halves[2].message_id} of producer group 'PG'")
    store.transactions.decide(halves[0], commit=True)
    store.transactions.decide(store.transactions.half_of(store.transactions.given_up()[0]), commit=False)  # type: ignore[arg-type]
    assert store.transactions.given_up() == []
    with open_store(store.root, housekeeping=False) as other, pytest.raises(TransactionDecided) as raised:
        other.transactions.decide(halves[0], commit=True)
    assert raised.value.committed
    assert bodies(store) == [b"1", b"0"]
    assert bodies(store, GIVEN_UP_QUEUE) == [b"0", b"2"]


def test_one_that_is_past_the_reserved_time_is_given_up_at_once(store: MessageStore, appender: Appender) -> None:
    clock = Clock(store)
    clock.now_ms = half_of(store, appender, b"a").born_timestamp + 72 * 3_600_000 + 1
    store.transactions.check()
    (copy,) = store.transactions.given_up()
    assert (copy.topic, checks_of(copy)) == (GIVEN_UP_TOPIC, 1)


@pytest.mark.guarantee("G32")
def test_half_messages_that_retention_removes_are_told_of(
    store: MessageStore, appender: Appender, caplog: pytest.LogCaptureFixture
) -> None:
    halves = [half_of(store, appender, b"x" * 1_500) for _ in range(100)]
    for half in halves[::2]:
        store.transactions.decide(half, commit=False)
    store.flusher.flush_thorough()
    store.retention.clean(requested=True, reserved_hours=1)
    store.state.raise_min_offset(2 * SMALL.commit_log_file_bytes)
    low = store.compaction.oldest(HALF_QUEUE)
    assert low > 10
    with caplog.at_level(logging.ERROR):
        store.transactions.check()
    (told,) = caplog.messages
    assert told.startswith(f"retention removed {low // 2} undecided half messages, 1 to")
    assert numbers(store.transactions.pending()) == [number for number in range(low, 100) if number % 2]


# --- openings -------------------------------------------------------------------------------------


@pytest.mark.guarantee("G32")
def test_the_progress_is_written_down_and_read_again(store: MessageStore, appender: Appender) -> None:
    clock = Clock(store)
    halves = [half_of(store, appender, b"%d" % number) for number in range(4)]
    store.transactions.decide(halves[0], commit=True)
    clock.now_ms += MINUTE_MS
    store.transactions.check()
    store.close()
    offsets = config_file.read_consumer_offsets(store.root)
    assert (offsets[HALF_TOPIC, GROUP], offsets[OPERATION_TOPIC, GROUP]) == ({0: 4}, {0: 1})
    (store.root / "shared").unlink()  # as after a boot
    with open_store(store.root, housekeeping=False) as again:
        assert numbers(again.transactions.pending()) == [4, 5, 6]
    assert reference.check_store(store.root) == []


@pytest.mark.guarantee("G32")
def test_progress_over_what_is_not_flushed_is_not_written_down(store: MessageStore, appender: Appender) -> None:
    clock = Clock(store)
    half_of(store, appender, b"a")
    clock.now_ms += MINUTE_MS
    store.transactions.check()
    # Or a power cut could take the renewal away, and the half message would stand below the progress
    assert store.state.flushed_to == store.state.published_to
    store.offsets.persist()
    assert config_file.read_consumer_offsets(store.root)[HALF_TOPIC, GROUP] == {0: 1}


@pytest.mark.guarantee("G31")
def test_more_is_passed_in_one_round_than_may_be_under_way(tmp_path: Path) -> None:
    config = replace(SMALL, commit_log_file_bytes=1 << 20)
    with open_store(tmp_path / "many", config, housekeeping=False) as store:
        appender = appender_of(store)
        halves = [half_of(store, appender, b"a") for _ in range(2_500)]
        for half in halves:
            store.transactions.decide(half, commit=False)
        Clock(store).now_ms += MINUTE_MS
        store.transactions.check()
        abandon(store)
        with open_store(tmp_path / "many", housekeeping=False) as again:
            assert again.transactions.pending() == []
