"""Sending with any delay: where the message waits, who gets it when, and how it is cancelled."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rmqclient import Message, MessageQueue, Producer, ReceivedMessage, StoreConfig
from rmqclient.duration import Duration
from rmqclient.errors import InvalidName, LimitReached, MessageRejected, NotFlushed, TimerFull
from rmqclient.names import check_topic
from rmqclient.store import TIMER_TOPIC, MessageStore, clock, java_hash, layout, open_store
from rmqclient.store.config import RetentionConfig
from rmqclient.store.inspect.verify import verify
from rmqclient.store.kernel._kernel import cancel_timed, deliver_timed, roll_timed
from rmqclient.store.runtime import shared_state
from rmqclient.store.settings.disk import Usage
from rmqclient.store.waiting.timer import LANE
from rmqclient.store.waiting.timer_bits import QUEUE
from rmqclient.store.waiting.timer_restore import read_snapshot, write_snapshot
from tests.client.conftest import wait_for

HOUR = timedelta(hours=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Nobody delivers but who says so."""
    with open_store(tmp_path / "store", housekeeping=False) as opened:
        yield opened


def deliver_until(store: MessageStore, now_ms: int) -> None:
    """Deliver what is due at a time."""
    store.timer.now_ms = lambda: now_ms
    while store.timer.look() == 0:
        pass


def delivered(store: MessageStore, topic: str) -> list[bytes]:
    """Return what stands in queue 0 of a topic."""
    queue = MessageQueue(topic, 0)
    return [store.messages.at(queue, number).body for number in range(store.topics.max_offset(queue))]


@pytest.mark.parametrize("delay", [timedelta(milliseconds=1_500), 1.5])
def test_a_message_with_a_delay_waits_in_the_timer_until_it_is_due(
    store: MessageStore, producer: Producer, delay: Duration
) -> None:
    producer.create_topic("flights", 1)
    before = time.time_ns()
    result = producer.send(Message("flights", b"body", tags="a", keys=["k"]), delay=delay)
    after = time.time_ns()
    assert (result.queue, result.queue_offset) == (QUEUE, 0)
    (waiting,) = store.timer.pending()
    assert (waiting.message_id, waiting.topic, waiting.queue_id, waiting.queue_offset) == (
        result.message_id,
        "flights",
        0,
        0,
    )
    assert before <= waiting.due_ms * 1_000_000 - 1_500_000_000 <= after + 1_000_000

    deliver_until(store, waiting.due_ms - 1)
    assert delivered(store, "flights") == []
    deliver_until(store, waiting.due_ms)
    assert delivered(store, "flights") == [b"body"]
    copy = store.messages.at(MessageQueue("flights", 0), 0)
    assert (copy.message_id, copy.tags, copy.keys) == (result.message_id, "a", ("k",))
    assert list(store.timer.pending()) == []


def test_the_first_message_of_a_store_wakes_who_delivers_though_there_was_no_queue_to_wait_for(
    store: MessageStore, producer: Producer
) -> None:
    lane = shared_state.arrival_lane_at(LANE)
    before = store.state.words.load32(lane)
    producer.send(Message("flights", b"1"), delay=HOUR)
    assert store.state.words.load32(lane) == before + 1


def test_messages_come_in_the_order_in_which_they_are_due(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("flights", 1)
    start = datetime.now(UTC) + HOUR
    for number in (5, 1, 4, 1, 3, 2):
        producer.send(Message("flights", b"%d" % number), deliver_at=start + timedelta(milliseconds=number))
    assert [waiting.queue_offset for waiting in store.timer.pending()] == [1, 3, 5, 4, 2, 0]
    deliver_until(store, 2**62)
    assert delivered(store, "flights") == [b"1", b"1", b"2", b"3", b"4", b"5"]


def test_a_batch_waits_as_a_whole_and_is_delivered_in_order(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("flights", 1)
    sent = [b"%d" % number for number in range(300)]
    results = producer.send_batch([Message("flights", body) for body in sent], delay=HOUR)
    assert [result.queue_offset for result in results] == list(range(300))
    deliver_until(store, 2**62)
    assert delivered(store, "flights") == sent


def test_a_cancelled_message_is_never_delivered(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("flights", 1)
    first, second = (producer.send(Message("flights", body), delay=HOUR) for body in (b"first", b"second"))
    assert producer.cancel(first.message_id)
    assert not producer.cancel(first.message_id)
    assert not producer.cancel("7F00000100000000000000000000FFFF")
    assert not producer.cancel(store.messages.at(QUEUE, 2).message_id)  # that of the operation
    assert [waiting.message_id for waiting in store.timer.pending()] == [second.message_id]
    deliver_until(store, 2**62)
    assert delivered(store, "flights") == [b"second"]
    assert not producer.cancel(second.message_id)


def test_a_time_that_has_passed_is_at_once(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("flights", 1)
    for when in (
        {"delay": timedelta()},
        {"delay": 0.0},
        {"deliver_at": datetime.now(UTC)},
        {"deliver_at": datetime(1970, 1, 1, tzinfo=UTC)},
    ):
        assert producer.send(Message("flights", b""), **when).queue.topic == "flights"
    assert TIMER_TOPIC not in store.topics.topics()


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({"delay": timedelta(microseconds=-1)}, "must be at least 0 s"),
        ({"delay": timedelta(days=4_000)}, "ten years"),
        ({"delay": 4_000 * 86_400}, "ten years"),
        ({"delay": float("inf")}, "ten years"),
        ({"delay": float("nan")}, "must be at least 0 s"),
        ({"deliver_at": datetime(9999, 1, 1, tzinfo=UTC)}, "ten years"),
        ({"deliver_at": datetime(2030, 1, 1)}, "lacks a time zone"),  # noqa: DTZ001
        ({"delay": HOUR, "delay_level": 3}, "give one of them"),
        ({"delay": HOUR, "deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}, "give one of them"),
    ],
)
def test_a_time_that_cannot_be_meant_is_refused(
    store: MessageStore, producer: Producer, when: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        producer.send(Message("t", b""), **when)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=words):
        producer.send_batch([Message("t", b"")], **when)  # type: ignore[arg-type]
    assert store.state.published_to == 0


def test_nobody_sends_into_the_timer_directly(store: MessageStore, producer: Producer) -> None:
    producer.send(Message("t", b""), delay=HOUR)
    for send in (
        lambda: producer.send(Message(TIMER_TOPIC, b"")),
        lambda: producer.send_batch([Message(TIMER_TOPIC, b"")]),
    ):
        with pytest.raises(MessageRejected, match="deliver_at"):
            send()
    with pytest.raises(InvalidName, match="deliver_at"):
        check_topic(TIMER_TOPIC, reserved=True)
    assert store.topics.max_offset(QUEUE) == 1


def test_on_an_idle_machine_a_message_comes_when_it_is_due(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("flights", 1)
    with open_store(store.root) as other:
        housekeeper = other.housekeeper
        assert housekeeper is not None
        wait_for(lambda: housekeeper.has_role, "there is a housekeeper")
        for number in range(20):
            producer.send(Message("flights", b"%d" % number), delay=timedelta(milliseconds=300 - 10 * number))
        wait_for(lambda: store.topics.max_offset(MessageQueue("flights", 0)) == 20, "all are delivered")
    queue = MessageQueue("flights", 0)
    copies = [store.messages.at(queue, number) for number in range(20)]
    due = [int(copy.properties["TIMER_OUT_MS"]) for copy in copies]
    assert due == sorted(due)
    assert min(copy.store_timestamp - time for copy, time in zip(copies, due, strict=True)) >= 0


def bodies_everywhere(store: MessageStore, topic: str) -> list[bytes]:
    """Return what stands in all queues of a topic, sorted."""
    return sorted(
        store.messages.at(queue, number).body
        for queue in store.topics.queues(topic)
        for number in range(store.topics.max_offset(queue))
    )


@pytest.mark.guarantee("G34")
def test_a_message_that_was_rolled_is_cancelled_by_its_id(store: MessageStore, producer: Producer) -> None:
    result = producer.send(Message("flights", b"x"), delay=HOUR)
    for rolls in (1, 2):
        store.timer.roll_below(store.state.published_to)
        (waiting,) = store.timer.pending()
        assert (waiting.message_id, waiting.queue_offset) == (result.message_id, rolls)
        assert store.messages.at(QUEUE, rolls).properties["TIMER_ROLL_TIMES"] == str(rolls)
        assert store.messages.at(QUEUE, rolls).properties["TIMER_QUEUE_OFFSET"] == str(rolls - 1)
    assert producer.cancel(result.message_id)
    assert list(store.timer.pending()) == []
    deliver_until(store, 2**62)
    assert bodies_everywhere(store, "flights") == []


@pytest.mark.guarantee("G34")
def test_cancelling_and_delivering_at_once_one_of_them_does_it(store: MessageStore, producer: Producer) -> None:
    results = [producer.send(Message("flights", b"%03d" % number), delay=HOUR) for number in range(200)]
    store.timer.now_ms = lambda: 2**62
    delivering = threading.Thread(target=store.timer.look)
    with open_store(store.root, housekeeping=False) as other, Producer(other) as canceller:
        delivering.start()
        cancelled = [canceller.cancel(result.message_id) for result in reversed(results)]
        delivering.join()
    left = [b"%03d" % number for number, done in enumerate(reversed(cancelled)) if not done]
    assert bodies_everywhere(store, "flights") == left


@pytest.mark.guarantee("G33")
def test_a_clock_that_is_set_back_makes_nothing_early_and_one_set_forward_nothing_late(
    store: MessageStore, producer: Producer
) -> None:
    producer.create_topic("flights", 1)
    start = datetime.now(UTC) + HOUR
    start_ms = -(-int(start.timestamp() * 1_000_000) // 1_000)
    for seconds in (1, 2, 3):
        producer.send(Message("flights", b"%d" % seconds), deliver_at=start + timedelta(seconds=seconds))
    deliver_until(store, start_ms + 1_000)
    assert delivered(store, "flights") == [b"1"]
    deliver_until(store, start_ms - 86_400_000)
    assert delivered(store, "flights") == [b"1"]
    deliver_until(store, start_ms + 1_999)
    assert delivered(store, "flights") == [b"1"]
    deliver_until(store, start_ms + 86_400_000)
    assert delivered(store, "flights") == [b"1", b"2", b"3"]


@pytest.mark.guarantee("G33")
def test_when_the_housekeeper_is_killed_another_process_delivers(tmp_path: Path) -> None:
    code = (
        "import sys, signal, time; from rmqclient.store import open_store; s = open_store(sys.argv[1])\n"
        "while not s.housekeeper.has_role: time.sleep(0.01)\n"
        "print('has it', flush=True); signal.pause()"
    )
    root = tmp_path / "store"
    with (
        subprocess.Popen([sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True) as child,
        open_store(root, housekeeping=False) as sending,
        Producer(sending) as producer,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == "has it\n"
        with open_store(root):
            sent = [b"%03d" % number for number in range(300)]
            for number, body in enumerate(sent):
                producer.send(Message("flights", body), delay=timedelta(milliseconds=5 * number))
            wait_for(lambda: len(bodies_everywhere(sending, "flights")) > 20, "the first are delivered")
            child.send_signal(signal.SIGKILL)
            wait_for(lambda: len(bodies_everywhere(sending, "flights")) == 300, "all are delivered")
        assert bodies_everywhere(sending, "flights") == sent
        assert list(sending.timer.pending()) == []


@pytest.mark.guarantee("G35")
def test_what_waits_in_a_file_that_retention_removes_waits_on(tmp_path: Path) -> None:
    config = StoreConfig(
        commit_log_file_bytes=36_864,
        max_body_bytes=2_048,
        consume_queue_file_entries=64,
        retention=RetentionConfig(disk_max_used_percent=1, disk_clean_forcibly_percent=1),
    )
    with open_store(tmp_path / "store", config, housekeeping=False) as store, Producer(store) as producer:
        kept = [producer.send(Message("flights", b"kept %d" % number), delay=HOUR) for number in range(3)]
        assert producer.cancel(kept[1].message_id)
        for _ in range(60):
            producer.send(Message("other", b"x" * 2_000))
        store.flusher.flush_thorough()
        store.disk.usage = lambda: Usage(99.0, 0)  # type: ignore[method-assign]
        store.state.disk_full = 1  # rolling goes into the file that is there
        assert store.retention.clean()
        assert store.state.min_offset > kept[-1].commit_log_end
        assert [waiting.message_id for waiting in store.timer.pending()] == [kept[0].message_id, kept[2].message_id]
        assert store.state.flushed_to >= max(
            store.messages.at(QUEUE, waiting.queue_offset).commit_log_offset for waiting in store.timer.pending()
        )
        store.state.disk_full = 0
        store.disk.usage = lambda: Usage(10.0, 1 << 40)  # type: ignore[method-assign]
        deliver_until(store, 2**62)
        assert bodies_everywhere(store, "flights") == [b"kept 0", b"kept 2"]


@pytest.mark.guarantee("G35")
def test_the_bits_are_used_again_and_who_is_too_far_behind_is_rolled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "TIMER_BITS", 256)
    with open_store(tmp_path / "store", housekeeping=False) as store, Producer(store) as producer:
        now_ms = time.time_ns() // 1_000_000
        store.timer.now_ms = lambda: now_ms + 1_800_000
        late = producer.send(Message("late", b"late"), delay=HOUR)
        sent = [b"%04d" % number for number in range(2_000)]
        for at in range(0, 2_000, 10):
            producer.send_batch([Message("flights", body) for body in sent[at : at + 10]], delay=HOUR / 4)
            store.timer.look()
        deliver_until(store, now_ms + 1_800_000)
        assert bodies_everywhere(store, "flights") == sent
        (waiting,) = store.timer.pending()
        assert waiting.message_id == late.message_id
        assert waiting.queue_offset > 1_500
        assert bodies_everywhere(store, "late") == []
        deliver_until(store, now_ms + 4_000_000)
        assert bodies_everywhere(store, "late") == [b"late"]


@pytest.mark.guarantee("G35")
def test_when_as_many_wait_as_there_are_bits_the_next_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "TIMER_BITS", 128)
    with open_store(tmp_path / "store", housekeeping=False) as store, Producer(store) as producer:
        result = [producer.send(Message("flights", b"x"), delay=HOUR) for _ in range(126)][-1]
        store.timer.look()
        with pytest.raises(TimerFull, match="128 messages"):
            producer.send(Message("flights", b"x"), delay=HOUR)
        with pytest.raises(TimerFull):
            producer.send_batch([Message("flights", b"x")], delay=HOUR)
        assert producer.cancel(result.message_id)  # what makes room is not refused
        deliver_until(store, 2**62)
        producer.send(Message("flights", b"x"), delay=HOUR)
        assert len(bodies_everywhere(store, "flights")) == 125


@pytest.mark.guarantee("G33")
def test_a_time_is_found_in_the_record_where_a_broker_has_made_the_entry(
    store: MessageStore, producer: Producer
) -> None:
    producer.create_topic("flights", 1)
    first = producer.send(Message("flights", b"first", tags="a"), delay=HOUR)
    second = producer.send(Message("flights", b"second"), delay=HOUR)
    gone = producer.send(Message("flights", b"gone"), delay=HOUR)
    assert producer.cancel(gone.message_id)
    entries = store.consume_queues[QUEUE]
    for number, result in enumerate((first, second)):
        entry = entries.entry(number)
        entries.write(number, entry._replace(tags_code=java_hash("a") if result is first else 0))
    assert [waiting.message_id for waiting in store.timer.pending()] == [first.message_id, second.message_id]
    store.timer.look()
    assert delivered(store, "flights") == []
    deliver_until(store, 2**62)
    assert delivered(store, "flights") == [b"first", b"second"]


@pytest.mark.guarantee("G33")
def test_a_host_that_believes_it_is_january_1970_delivers_when_it_says(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a board without a battery, whose times are no larger than hashes of tags
    producer.create_topic("flights", 1)
    day_ms = 86_400_000
    monkeypatch.setattr(clock, "wall_ns", lambda: 3 * day_ms * 1_000_000)
    first = producer.send(Message("flights", b"first", tags="a"), delay=1)
    second = producer.send(Message("flights", b"second"), delay=timedelta(seconds=2))
    gone = producer.send(Message("flights", b"gone"), delay=HOUR)
    assert producer.cancel(gone.message_id)

    # Then each of them waits, and comes when it is due
    waiting = [(found.message_id, found.due_ms - 3 * day_ms) for found in store.timer.pending()]
    assert waiting == [(first.message_id, 1_000), (second.message_id, 2_000)]
    deliver_until(store, 3 * day_ms + 999)
    assert delivered(store, "flights") == []
    deliver_until(store, 3 * day_ms + 1_000)
    assert delivered(store, "flights") == [b"first"]
    deliver_until(store, 3 * day_ms + 2_000)
    assert delivered(store, "flights") == [b"first", b"second"]
    assert verify(store.root) == []


@pytest.mark.guarantee("G33")
def test_a_message_that_cannot_be_read_at_first_is_delivered_later(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given messages whose times stand in their records alone, as a broker makes the entries
    producer.create_topic("flights", 1)
    for number in range(3):
        producer.send(Message("flights", b"%d" % number), delay=HOUR)
        entry = store.consume_queues[QUEUE].entry(number)
        store.consume_queues[QUEUE].write(number, entry._replace(tags_code=0))

    # When the process has no descriptor for the second of them
    read = store.timer.message

    def refused(number: int) -> ReceivedMessage | None:
        if number == 1:
            raise LimitReached("too many open files")
        return read(number)

    monkeypatch.setattr(store.timer, "message", refused)
    with pytest.raises(LimitReached):
        store.timer.look()
    monkeypatch.undo()

    # Then the next look finds it, and all behind it
    deliver_until(store, 2**62)
    assert delivered(store, "flights") == [b"0", b"1", b"2"]


def test_a_message_that_cannot_be_delivered_is_stepped_over_and_said(
    store: MessageStore, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    producer.create_topic("flights", 1)
    producer.send(Message("flights", b"damaged"), delay=HOUR)
    producer.send(Message("flights", b"whole"), delay=HOUR)
    mapping = store.log_files.mapping(0)
    memoryview(mapping)[100] ^= 1
    deliver_until(store, 2**62)
    assert delivered(store, "flights") == [b"whole"]
    assert "message 0 of the timer cannot be delivered" in caplog.text
    assert list(store.timer.pending()) == []


def test_a_forwarded_message_cannot_end_the_wait_of_another_one(store: MessageStore, producer: Producer) -> None:
    for name in ("TIMER_QUEUE_OFFSET", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY"):
        with pytest.raises(MessageRejected, match=name):
            producer.send(Message("flights", b"", properties={name: "0"}))


def test_a_level_and_the_timer_take_the_same_message_one_after_the_other(
    store: MessageStore, producer: Producer
) -> None:
    """What is sent back, or forwarded, has its properties of the timer; they count only for the same message."""
    producer.create_topic("flights", 1)
    producer.send(Message("flights", b"first"), delay=HOUR)
    deliver_until(store, 2**62)
    copy = store.messages.at(MessageQueue("flights", 0), 0)
    producer.send(Message("flights", b"second"), delay=HOUR)
    appender = store.appenders.make(store.topics.queues, lambda _: b"")
    properties = {**copy.properties, "TIMER_QUEUE_OFFSET": "1"}
    again = appender.append_copy(copy, "flights", 0, properties, reconsume_times=1, delay_level=1)
    assert again.message_id == copy.message_id
    root = store.root
    store.close()
    for name in ("shared", "timer.done"):
        (root / name).unlink()
    with open_store(root, housekeeping=False) as rebooted:
        assert [waiting.queue_offset for waiting in rebooted.timer.pending()] == [1]


@pytest.mark.guarantee("G33")
def test_what_is_done_is_written_when_it_is_on_the_disk(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer.send(Message("flights", b"x"), delay=HOUR)
    deliver_until(store, 2**62)

    def not_flushed(end: int) -> None:
        raise NotFlushed(f"up to {end}")

    with monkeypatch.context() as patched:
        patched.setattr(store.timer._record, "_wait_until_flushed", not_flushed)
        with pytest.raises(NotFlushed):
            store.timer.persist()
        assert read_snapshot(store.root) is None
    store.timer.persist()
    snapshot = read_snapshot(store.root)
    assert snapshot is not None
    assert snapshot.done.bits[0] == 1
    assert snapshot.flushed_to == store.state.flushed_to == store.state.published_to


@pytest.mark.guarantee("G33")
def test_what_a_file_says_that_is_damaged_or_ahead_of_the_log_is_not_believed(
    store: MessageStore, producer: Producer
) -> None:
    sent = [b"%03d" % number for number in range(100)]
    for body in sent:
        producer.send(Message("flights", body), delay=HOUR)
    store.timer.now_ms = lambda: 2**62
    store.timer._deliver(3)
    root, done = store.root, store.root / "timer.done"
    store.close()
    whole = done.read_bytes()
    snapshot = read_snapshot(root)
    assert snapshot is not None
    ahead = snapshot._replace(flushed_to=snapshot.flushed_to + 1)
    for content in (whole, whole[:-1], whole[:20], whole[:50] + b"\xff" + whole[51:], None, b""):
        (root / "shared").unlink()
        write_snapshot(root, ahead) if content is None else done.write_bytes(content)
        with open_store(root, housekeeping=False) as rebooted:
            waiting = {pending.queue_offset for pending in rebooted.timer.pending()}
            assert waiting == set(range(100)) - {3}
    with open_store(root, housekeeping=False) as rebooted:
        deliver_until(rebooted, 2**62)
        assert bodies_everywhere(rebooted, "flights") == sent


@pytest.mark.guarantee("G33")
@pytest.mark.guarantee("G34")
def test_an_append_does_nothing_for_a_message_that_is_done_already(store: MessageStore, producer: Producer) -> None:
    """Whoever ends a wait has looked before; in between somebody else may have ended it, and the bits have moved on."""
    producer.create_topic("flights", 1)
    for _ in range(65):
        producer.send(Message("flights", b""), delay=HOUR)
    first, last = store.timer.message(0), store.timer.message(64)
    assert first is not None
    assert last is not None
    deliver_until(store, 2**62)
    store.timer.bits.advance()
    assert store.timer.bits.done_to == 64
    end = store.state.published_to
    appender = store.appenders.make(store.topics.queues, lambda _: b"")
    for message in (first, last):
        assert deliver_timed(appender, message, "flights", 0) is None
        assert roll_timed(appender, message) is None
        assert cancel_timed(appender, message) is None
    assert store.state.published_to == end
