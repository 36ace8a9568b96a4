"""The recorder writes down what was counted, whatever the clock, the disk, the groups and the machine do."""

from __future__ import annotations

import os
import time as host
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageQueue, MessageStore, clock, open_store
from rmqclient.store.errors import StoreBusy
from rmqclient.store.files.file_lock import HISTORY_BYTE, LockFile
from rmqclient.store.history import recorder, rings
from rmqclient.store.history.figures import Figures, figures_of, points_of
from rmqclient.store.history.recorder import Recorder
from rmqclient.store.history.rings import Head, HistoryFile
from rmqclient.store.layout import HISTORY_FILE, HISTORY_HEAD_BYTES
from tests.support.stores import GROUP, QUEUE, SMALL, SPAN, TOPIC, abandon, appender_of, grant_of

FOR_EVER_MS = 1 << 42


@dataclass
class Time:
    """A time of day that a test moves."""

    now_ms: int = field(default_factory=clock.wall_ms)

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with open_store(root, SMALL, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def records(store: MessageStore, time: Time) -> Recorder:
    """Write a history that has begun, before the first message."""
    made = Recorder(store.root, store.lock, wall_ms=time)
    made.record()
    return made


def handle(store: MessageStore, count: int, group: str = GROUP, topic: str = TOPIC) -> None:
    """Send so many messages, and finish them."""
    appender = store.appenders.make(lambda name: store.topics.create(name, 1), lambda body: str(body).encode())
    for number in range(count):
        appender.append(Message(topic, b"%d" % number))
    grant = grant_of(store, group, MessageQueue(topic, 0))
    offsets = [each.queue_offset for each in grant.take(SPAN, SPAN)]
    assert not offsets or grant.acknowledge_offsets(offsets)


def all_of(root: Path, group: str = GROUP) -> Figures:
    """Return what a group did in all of the history."""
    return next(each for each in figures_of(root, 0, FOR_EVER_MS) if each.group == group)


@pytest.mark.guarantee("G127")
def test_a_record_has_what_was_counted_since_the_one_before(store: MessageStore, records: Recorder, time: Time) -> None:
    began_ms = time.now_ms
    for count in (3, 0, 5):
        handle(store, count)
        time.now_ms += 10_000
        records.record()
    points = points_of(store.root, began_ms, time.now_ms)
    assert [point.rows[GROUP].handled if point.rows else 0 for point in points] == [3, 0, 5]
    assert [point.rows[GROUP].published if point.rows else 0 for point in points] == [3, 0, 5]
    assert [point.ended_ms - point.began_ms for point in points] == [10_000] * 3


def test_a_record_says_what_waits_and_for_how_long(root: Path) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        appender = appender_of(store)
        for number in range(4):
            appender.append(Message(TOPIC, b"%d" % number))
        grant_of(store)
        stored_ms = store.messages.at(QUEUE, 0).store_timestamp
        Recorder(root, store.lock, wall_ms=lambda: stored_ms + 7_500).record()
    figures = all_of(root)
    assert (figures.lag, figures.row.lag, figures.row.oldest_s) == (4, 4, 7)
    assert figures.drained_in_s is None


@pytest.mark.guarantee("G127")
def test_minutes_and_quarters_of_an_hour_sum_up_records_and_the_whole_counts_each_once(
    store: MessageStore, time: Time
) -> None:
    time.now_ms -= time.now_ms % 900_000
    records = Recorder(store.root, store.lock, wall_ms=time)
    records.record()
    for number in range(400):
        if number % 3 == 0:
            handle(store, 1 + number % 2)
        time.now_ms += 10_000
        records.record()
    handled = grant_of(store).committed_offset
    assert all_of(store.root).row.handled == handled
    with HistoryFile(store.root) as file:
        head = file.head()
        assert head is not None
        minutes, quarters = (len(file.records(head, level)) for level in (1, 2))
    assert (minutes, quarters) == (1 + 400 // 6, 1 + 400 // 90)  # the first one ends where a quarter of an hour does
    for seconds in (100, 1_000, 3_600, 4_000):
        (figures,) = figures_of(store.root, time.now_ms - seconds * 1000, time.now_ms)
        points = points_of(store.root, time.now_ms - seconds * 1000, time.now_ms)
        assert figures.seconds == seconds
        assert figures.row.handled == sum(point.rows[GROUP].handled for point in points if point.rows)


@pytest.mark.guarantee("G127")
def test_who_comes_next_counts_what_was_counted_while_nobody_wrote(root: Path, time: Time) -> None:
    store = open_store(root, SMALL, housekeeping=False)
    Recorder(root, store.lock, wall_ms=time).record()
    handle(store, 2)
    Recorder(root, store.lock, wall_ms=time).record()
    handle(store, 3)
    abandon(store)  # all processes are killed
    time.now_ms += 5_000
    with open_store(root, SMALL, housekeeping=False) as again:
        handle(again, 4)
        Recorder(root, again.lock, wall_ms=time).record()
    assert (all_of(root).row.published, all_of(root).row.handled) == (9, 9)


@pytest.mark.guarantee("G127")
def test_after_a_reboot_counters_that_begin_at_0_are_added_even_if_they_have_grown_past_the_former_ones(
    root: Path, time: Time
) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        Recorder(root, store.lock, wall_ms=time).record()
        handle(store, 3)
        Recorder(root, store.lock, wall_ms=time).record()
    (root / "shared").unlink()  # as a reboot leaves it
    time.now_ms += 10_000
    with open_store(root, SMALL, housekeeping=False) as again:
        handle(again, 5)
        Recorder(root, again.lock, wall_ms=time).record()
    assert (all_of(root).row.published, all_of(root).row.handled) == (8, 8)


def test_a_store_that_is_closed_has_all_in_its_history_if_it_has_one(root: Path, time: Time) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        handle(store, 3)
    assert not (root / HISTORY_FILE).exists()
    with open_store(root, SMALL, housekeeping=False) as store:
        store.history.record()
        handle(store, 2)
    assert all_of(root).row.handled == 5


def test_the_history_of_a_store_that_had_none_begins_now(root: Path) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        handle(store, 3)
        stored_ms = store.messages.at(QUEUE, 0).store_timestamp
        an_hour_later = Recorder(root, store.lock, wall_ms=lambda: stored_ms + 3_600_000)
        an_hour_later.record()
        handle(store, 2)
        an_hour_later.record()
    assert (all_of(root).row.published, all_of(root).row.handled) == (2, 2)


@pytest.mark.guarantee("G127")
@pytest.mark.parametrize("jump_ms", [-40 * 86_400_000, -5_000, 86_400_000, 3_650 * 86_400_000])
def test_a_clock_that_jumps_and_returns_takes_nothing_from_the_history_and_counts_nothing_twice(
    store: MessageStore, records: Recorder, time: Time, jump_ms: int
) -> None:
    for number in range(30):
        handle(store, 1)
        time.now_ms += 10_000 + (jump_ms if number == 10 else -jump_ms if number == 20 else 0)
        records.record()
    assert all_of(store.root).row.handled == 30
    (now,) = figures_of(store.root, time.now_ms - 50_000, time.now_ms)
    assert now.row.handled == 5


def test_a_group_that_was_removed_keeps_its_rows_and_begins_anew_when_it_comes_back(
    store: MessageStore, records: Recorder, time: Time
) -> None:
    def pass_and_record() -> None:
        time.now_ms += 10_000
        records.record()

    handle(store, 5)
    pass_and_record()
    store.forget_groups([GROUP])
    pass_and_record()
    assert all_of(store.root).row.handled == 5
    handle(store, 2)  # of a group that begins at the first message
    pass_and_record()
    assert all_of(store.root).row.handled == 5 + 7
    assert all_of(store.root).row.published == 5  # nobody consumed the topic when the two were stored


def test_groups_that_are_gone_make_room_and_those_that_find_none_count_from_when_they_find_it(
    store: MessageStore, records: Recorder, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MOST_GROUPS", 2)

    def record() -> set[str]:
        time.now_ms += 10_000
        records.record()
        return {each.group for each in figures_of(store.root, 0, FOR_EVER_MS)}

    for group in ("a", "b", "c"):
        handle(store, 1, group)
    assert record() == {"a", "b"}
    store.forget_groups(["a"])
    handle(store, 1, "c")
    record()
    handle(store, 1, "c")
    assert record() == {"b", "c"}
    assert all_of(store.root, "c").row.handled == 1


def test_a_group_with_more_topics_than_there_is_room_for_is_left_out_and_the_others_are_recorded(
    store: MessageStore, records: Recorder, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "_LARGEST_DOCUMENT", 1_500)
    for count in (1, 2):
        handle(store, count, "a-mail")
        for _ in range(60):
            handle(store, 1, "crowded", f"device-{uuid.uuid4()}")
        time.now_ms += 10_000
        records.record()
    assert all_of(store.root, "a-mail").row.handled == 3
    assert [each.group for each in figures_of(store.root, 0, FOR_EVER_MS)] == ["a-mail"]


def test_topics_that_alone_are_too_many_leave_an_empty_head(
    store: MessageStore, records: Recorder, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "_LARGEST_DOCUMENT", 1_500)
    for _ in range(60):
        handle(store, 1, "crowded", f"device-{uuid.uuid4()}")
    time.now_ms += 10_000
    records.record()
    with HistoryFile(store.root) as file:
        head = file.head()
    assert head is not None
    assert (head.ended_ms, head.groups, head.topics) == (time.now_ms, {}, {})


def test_a_history_that_is_damaged_begins_anew(store: MessageStore, records: Recorder, time: Time) -> None:
    handle(store, 3)
    records.record()
    (store.root / HISTORY_FILE).write_bytes(os.urandom(1 << 20))
    assert figures_of(store.root, 0, FOR_EVER_MS) == []
    records.record()
    handle(store, 2)
    time.now_ms += 10_000
    records.record()
    assert all_of(store.root).row.handled >= 2


def test_a_store_with_the_history_of_another_version_is_closed_as_always(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(slots=True)
    class LaterHead(Head):
        weather: str = "fair"

    with open_store(root, SMALL, housekeeping=False) as store:
        with monkeypatch.context() as patched:
            patched.setattr(recorder, "Head", LaterHead)
            store.history.record()
        handle(store, 1)
    assert not (root / "abort").exists()
    with HistoryFile(root) as file:
        assert type(file.head()) is Head


def test_records_of_a_history_that_began_anew_do_not_mix_with_those_before(
    store: MessageStore, records: Recorder, time: Time
) -> None:
    for group in ("a", "b", "c", "d"):
        handle(store, 1, group)
    for _ in range(20):
        time.now_ms += 10_000
        handle(store, 1, "a")
        records.record()
    with (store.root / HISTORY_FILE).open("r+b") as content:
        content.write(bytes(2 * HISTORY_HEAD_BYTES))
    time.now_ms += 10_000
    records.record()  # from now on
    store.forget_groups(["b", "c", "d"])
    for _ in range(20):
        time.now_ms += 10_000
        handle(store, 1, "a")
        records.record()
    assert all_of(store.root, "a").row.handled == 20


def test_a_disk_that_is_full_costs_no_count(
    store: MessageStore, records: Recorder, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    handle(store, 3)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            records.record()
    handle(store, 2)
    records.record()
    assert all_of(store.root).row.handled == 5


@pytest.mark.guarantee("G127")
def test_the_housekeeper_writes_every_10_seconds_of_the_clock_of_the_store(root: Path) -> None:
    root.mkdir()
    clock.make(root)
    with open_store(root, SMALL) as store:
        handle(store, 3)
        assert store.housekeeper is not None
        until = clock.boottime() + 60_000_000_000
        while not (root / HISTORY_FILE).exists() or not figures_of(root, 0, FOR_EVER_MS):
            assert clock.boottime() < until, "no record in a minute"
            clock.advance(timedelta(seconds=2))
            host.sleep(0.05)
        assert all_of(root).row.handled == 3


def test_one_process_at_a_time_writes(store: MessageStore, records: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_LOCK_TIMEOUT_S", 0.05)
    other = LockFile(store.root / "lock")
    try:
        assert other.try_exclusive(HISTORY_BYTE)
        with pytest.raises(StoreBusy):
            records.record()
    finally:
        other.close()
    records.record()
