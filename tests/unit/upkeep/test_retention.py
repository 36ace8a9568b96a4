"""Retention: which files go, that they go in an order which leaves a right store, and that clocks delete nothing.

The matrix is that of RocketMQ's DefaultMessageStoreCleanFilesTest: 55 files, 15 of them old, 10 to a pass.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Semaphore

import pytest

from rmqclient.admin import Admin
from rmqclient.consuming.reader import Reader
from rmqclient.store import Message, MessageQueue, MessageStore, QueueGrant, layout, open_store
from rmqclient.store.config import RetentionConfig
from rmqclient.store.errors import MessageExpired
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.inspect.reading import open_reader
from rmqclient.store.inspect.verify import verify
from rmqclient.store.message_store import MessageStore as Store
from rmqclient.store.settings.disk import Usage
from rmqclient.store.upkeep.retention import (
    FILES_A_PASS,
    LONGEST_BELIEVED_MS,
    Clock,
    LogFile,
    Moment,
    Retention,
    due,
    removable,
)
from tests.support.oracle import reference
from tests.support.stores import QUEUE, SMALL, SPAN, TOPIC, abandon, appender_of, grant_of

HOUR = 3_600_000
DAY = 24 * HOUR
YEAR = 365 * DAY
NOW = 1_700_000_000_000

ONE_HOUR = RetentionConfig(file_reserved_hours=1)
AT_FOUR = Moment(now_ms=NOW, hour=4, used_percent=50.0)
AT_NOON = replace(AT_FOUR, hour=12)

BODY_BYTES = 2_000
A_FILE = 17
"""Messages of that size in one file of the log."""


def files(old: int, young: int, *, age_ms: int = 2 * HOUR) -> list[LogFile]:
    """Return files of which the first ``old`` ones are past their time."""
    ages = [age_ms] * old + [HOUR - 1] * young
    return [LogFile(number * 4_096, NOW - age) for number, age in enumerate(ages)]


def count(candidates: list[LogFile], moment: Moment, config: RetentionConfig = ONE_HOUR) -> list[int]:
    """Return how many files go, pass by pass, until none does."""
    counts = []
    while found := due(candidates, moment, config):
        assert found == [file.base for file in candidates[: len(found)]], "the oldest ones first"
        candidates = candidates[len(found) :]
        counts.append(len(found))
    return counts


# --- deciding -------------------------------------------------------------------------------------

MATRIX = {
    "by time": (files(15, 40), AT_FOUR, [10, 5]),
    "not at another hour": (files(15, 40), AT_NOON, []),
    "at any hour by space": (files(15, 40), replace(AT_NOON, used_percent=75.1), [10, 5]),
    "not yet by space": (files(15, 40), replace(AT_NOON, used_percent=75.0), []),
    "at once by space": (files(0, 55), replace(AT_NOON, used_percent=85.1), [10, 10, 10, 10, 10, 5]),
    "not yet at once": (files(0, 55), replace(AT_NOON, used_percent=85.0), []),
    "on request": (files(15, 40), replace(AT_NOON, requested=True), [10, 5]),
    "on request, on a full disk": (files(15, 40), replace(AT_NOON, requested=True, used_percent=99.0), [10, 5]),
    "on request, but none is old": (files(0, 55), replace(AT_NOON, requested=True), []),
    "none is old": (files(0, 55), AT_FOUR, []),
    "there are none": ([], AT_FOUR, []),
}


@pytest.mark.parametrize("case", MATRIX)
def test_as_many_files_go_in_each_pass_as_in_rocketmq(case: str) -> None:
    candidates, moment, expected = MATRIX[case]
    assert count(candidates, moment) == expected


def test_a_file_goes_when_it_is_exactly_as_old_as_the_reserved_time() -> None:
    assert due([LogFile(0, NOW - HOUR)], AT_FOUR, ONE_HOUR) == [0]
    assert due([LogFile(0, NOW - HOUR + 1)], AT_FOUR, ONE_HOUR) == []


def test_the_first_young_file_keeps_those_behind_it() -> None:
    assert due([*files(2, 1), *files(5, 0)], AT_FOUR, ONE_HOUR) == [0, 4_096]


def test_several_hours_may_be_given_and_forcible_cleaning_be_refused() -> None:
    twice = replace(ONE_HOUR, delete_hours=(4, 12))
    assert count(files(3, 0), AT_NOON, twice) == count(files(3, 0), AT_FOUR, twice) == [3]
    unforced = replace(ONE_HOUR, clean_forcibly=False)
    assert count(files(3, 10), replace(AT_NOON, used_percent=99.0), unforced) == [3]


def test_files_are_looked_at_only_as_far_as_needed() -> None:
    def only_the_first() -> Iterator[LogFile]:
        yield LogFile(0, NOW)
        pytest.fail("a file behind a young one was looked at")

    assert due(only_the_first(), AT_FOUR, ONE_HOUR) == []
    assert due(only_the_first(), AT_NOON, ONE_HOUR) == []


@pytest.mark.parametrize(
    ("bases", "published_to", "flushed_to", "expected"),
    [
        ([0, 10, 20], 25, 25, [0, 10]),
        ([0, 10, 20], 20, 20, [0, 10]),
        ([0, 10], 20, 20, [0]),  # both are full, but the newest file always stays
        ([0, 10, 20], 19, 19, [0]),  # the last one was allocated ahead
        ([0, 10, 20], 25, 9, []),
        ([0, 10, 20], 25, 10, [0]),
        ([10, 20, 30], 35, 35, [10, 20]),
        ([0], 9, 9, []),
        ([], 0, 0, []),
    ],
)
def test_the_newest_file_and_what_is_not_durable_never_go(
    bases: list[int], published_to: int, flushed_to: int, expected: list[int]
) -> None:
    assert removable(bases, 10, published_to, flushed_to) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"delete_hours": (24,)},
        {"delete_hours": ()},
        {"delete_hours": (4, -5)},
        {"file_reserved_hours": 0},
        {"disk_max_used_percent": 86},
        {"disk_full_percent": 84},
        {"disk_full_percent": 101},
        {"disk_max_used_percent": 0},
        {"disk_reserve_bytes": -1},
        {"interval_ms": 0},
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(change))}="):
        RetentionConfig(**change)  # type: ignore[arg-type]


# --- clocks ---------------------------------------------------------------------------------------


class SetClock(Clock):
    """Clocks that a test sets."""

    def __init__(self, wall_ms: int) -> None:
        self.wall = wall_ms
        self.since_boot = 5 * DAY

    def pass_by(self, elapsed_ms: int) -> None:
        self.wall += elapsed_ms
        self.since_boot += elapsed_ms

    def wall_ms(self) -> int:
        return self.wall

    def boottime_ms(self) -> int:
        return self.since_boot


class Kept:
    """A store whose files were all written now, and a retention that any hour suits."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.written_ms = written_ms(store)
        self.clock = SetClock(self.written_ms + 1_000)
        self.config = replace(SMALL, retention=RetentionConfig(file_reserved_hours=72, delete_hours=tuple(range(24))))
        self.pauses: list[float] = []
        store.disk.usage = lambda: Usage(10.0, 1 << 40)  # type: ignore[method-assign]
        self.retention = self.another()

    def another(self) -> Retention:
        """A housekeeper that starts now."""
        store = self.store
        return Retention(
            replace(store.parts, config=self.config),
            store.index_files,
            store.disk,
            store.compaction,
            clock=self.clock,
            pause=self.pauses.append,
        )


def written_ms(store: Store) -> int:
    return max(path.stat().st_mtime_ns for path in store.log_files.directory.iterdir()) // 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def kept(store: MessageStore) -> Kept:
    fill(store, 5)
    return Kept(store)


def fill(store: MessageStore, log_files: int) -> None:
    """Append until there are so many files, all but the last one full and durable."""
    appender = appender_of(store)
    while len(store.log_files.bases()) < log_files:
        appender.append(Message(TOPIC, bytes(BODY_BYTES)))
    appender.append_batch([Message(TOPIC, b"one of the newest")] * 3)
    store.flusher.flush_thorough()


def test_time_that_passes_makes_files_old(kept: Kept) -> None:
    kept.clock.pass_by(71 * HOUR)
    assert kept.retention.clean() == []
    kept.clock.pass_by(HOUR)
    assert len(kept.retention.clean()) == 4


@pytest.mark.guarantee("G12")
@pytest.mark.parametrize("jump", [-HOUR, HOUR, 10 * YEAR], ids=["-1 h", "+1 h", "+10 y"])
def test_a_clock_that_jumps_in_the_life_of_a_housekeeper_makes_nothing_older(kept: Kept, jump: int) -> None:
    kept.clock.pass_by(71 * HOUR + 30 * 60_000)
    kept.clock.wall += jump
    assert kept.retention.clean() == []
    kept.clock.pass_by(3 * HOUR)
    assert len(kept.retention.clean()) == 4, "and files that are really old go all the same, two hours later at most"


@pytest.mark.guarantee("G12")
@pytest.mark.parametrize(
    "jump", [-10 * YEAR, -HOUR, HOUR, 5 * DAY, 10 * YEAR], ids=["-10 y", "-1 h", "+1 h", "+5 d", "+10 y"]
)
def test_a_clock_that_jumped_before_a_housekeeper_began_deletes_no_young_store(kept: Kept, jump: int) -> None:
    kept.clock.wall += jump
    later = kept.another()
    assert later.clean() == []
    kept.clock.pass_by(70 * HOUR)
    assert later.clean() == []
    kept.clock.pass_by(3 * HOUR)
    assert len(later.clean()) == 4, "watched for the reserved time they go, whatever the wall clock says"


@pytest.mark.guarantee("G12")
def test_a_message_stored_after_the_jump_makes_the_clock_no_more_credible(kept: Kept) -> None:
    # Given a clock that jumped by ten years, and then a message, so that the store does not look forgotten
    kept.clock.wall += 10 * YEAR
    kept.store.state.last_store_timestamp = kept.clock.wall
    assert kept.another().clean() == []


def test_the_age_of_a_file_is_that_of_its_newest_message_when_its_modification_time_was_lost(kept: Kept) -> None:
    # Given a copy that kept no times, or a tool that set them back
    for path in kept.store.log_files.directory.iterdir():
        os.utime(path, (0, 0))
    kept.clock.pass_by(71 * HOUR)
    assert kept.retention.clean() == []
    # And the other way round: times of modification keep what was touched later
    for path in kept.store.log_files.directory.iterdir():
        os.utime(path, (kept.clock.wall / 1000, kept.clock.wall / 1000))
    kept.clock.pass_by(71 * HOUR)
    assert kept.another().clean() == []


def test_a_person_who_asks_is_believed_about_the_clock(kept: Kept) -> None:
    kept.clock.wall += LONGEST_BELIEVED_MS + 100 * HOUR
    later = kept.another()
    assert later.clean() == []
    assert len(later.clean(requested=True)) == 4


def test_a_disk_that_runs_full_needs_no_clock(kept: Kept) -> None:
    kept.store.disk.usage = lambda: Usage(86.0, 1 << 40)  # type: ignore[method-assign]
    assert len(kept.retention.clean()) == 4


def test_the_host_s_own_clocks_are_told_in_milliseconds() -> None:
    clock = Clock()
    before = clock.boottime_ms()
    assert clock.wall_ms() > NOW
    assert 0 <= clock.boottime_ms() - before < 10_000


# --- removing -------------------------------------------------------------------------------------


def force(store: MessageStore) -> list[int]:
    """Remove every file that may go, as on a disk that is nearly full."""
    store.disk.usage = lambda: Usage(99.0, 0)  # type: ignore[method-assign]
    store.retention._pause = lambda _: None
    removed: list[int] = []
    while found := store.retention.clean():
        removed += found
    return removed


@pytest.mark.guarantee("G12")
def test_the_oldest_files_go_and_what_is_left_is_a_right_store(store: MessageStore) -> None:
    fill(store, 15)
    size = SMALL.commit_log_file_bytes
    before = reference.read_commit_log(store.root)
    assert force(store) == [number * size for number in range(14)]

    assert store.log_files.bases() == [14 * size]
    assert store.state.min_offset == 14 * size
    kept = [record for offset, record in before if offset >= 14 * size]
    assert [record for _, record in reference.read_commit_log(store.root)] == kept
    assert store.topics.min_offset(QUEUE) == kept[0].queue_offset
    assert verify(store.root) == []
    assert reference.check_store(store.root) == []

    # And it goes on, is closed, and opened again as it is
    appender_of(store).append(Message(TOPIC, b"after"))
    end = store.topics.max_offset(QUEUE)
    store.close()
    with open_store(store.root, housekeeping=False) as again:
        assert again.state.min_offset == 14 * size
        assert (again.topics.min_offset(QUEUE), again.topics.max_offset(QUEUE)) == (kept[0].queue_offset, end)
        assert again.message_at(QUEUE, end - 1).body == b"after"
    assert reference.check_store(store.root) == []


def test_a_pass_removes_ten_files_at_most_and_pauses_between_them(kept: Kept) -> None:
    fill(kept.store, 13)
    kept.clock.pass_by(80 * HOUR)
    first = kept.retention
    assert len(first.clean()) == FILES_A_PASS
    assert kept.pauses == [0.1] * (FILES_A_PASS - 1)
    assert len(first.clean()) == 2


def test_consume_queue_files_go_with_their_last_message_and_the_last_file_stays(store: MessageStore) -> None:
    fill(store, 12)
    queue_files = store.consume_queues[QUEUE].files
    bases = queue_files.bases()
    assert len(bases) == 3
    force(store)
    assert queue_files.bases() == bases[-1:]


def test_a_queue_without_messages_keeps_its_numbers(store: MessageStore) -> None:
    # Given a queue whose messages are all older than those of another one
    appender = store.appender(lambda topic: store.topics.create(topic, 1), lambda body: bytes(str(body), "utf-8"))
    for _ in range(5):
        appender.append(Message("quiet", b"old"))
    fill(store, 3)
    force(store)

    # Then it is empty, its file is there, and the next message gets the next number, also after opening again
    quiet = MessageQueue("quiet", 0)
    assert (store.topics.min_offset(quiet), store.topics.max_offset(quiet)) == (5, 5)
    assert verify(store.root) == []
    store.close()
    with open_store(store.root, housekeeping=False) as again:
        assert (again.topics.min_offset(quiet), again.topics.max_offset(quiet)) == (5, 5)
        assert appender_of(again).append(Message("quiet", b"new")).queue_offset == 5
        assert again.message_at(quiet, 5).body == b"new"
    assert reference.check_store(store.root) == []


@pytest.mark.guarantee("G12")
def test_a_file_is_removed_only_when_every_reader_has_been_told(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 12)
    remove = FileQueue.remove
    removed: list[str] = []

    def checked(files: FileQueue, base: int) -> None:
        if files is store.log_files:
            assert store.state.min_offset >= base + files.file_bytes
        else:
            assert store.topics.min_offset(QUEUE) * layout.CONSUME_QUEUE_ENTRY.size >= base + files.file_bytes
        removed.append(files.directory.name)
        remove(files, base)

    monkeypatch.setattr(FileQueue, "remove", checked)
    force(store)
    assert removed.count("commitlog") == 11
    assert removed.count("0") == 2


def test_nothing_goes_that_is_not_durable(store: MessageStore) -> None:
    fill(store, 4)
    store.state.flushed_to = SMALL.commit_log_file_bytes + 1
    assert force(store) == [0]


def test_a_poisoned_store_is_left_as_it_is(store: MessageStore) -> None:
    fill(store, 4)
    store.disk.usage = lambda: Usage(99.0, 0)  # type: ignore[method-assign]
    store.state.poisoned = 5
    store.retention.run()
    assert len(store.log_files.bases()) == 4
    store.state.poisoned = 0
    store.retention.run()
    assert len(store.log_files.bases()) == 1


def test_another_process_finishes_what_a_killed_one_began(store: MessageStore) -> None:
    # Given a minimum that was raised, and then nothing
    fill(store, 5)
    store.state.raise_min_offset(2 * SMALL.commit_log_file_bytes)
    with open_store(store.root, SMALL, housekeeping=False) as other:
        assert other.retention.clean() == []
        assert other.log_files.bases()[0] == 2 * SMALL.commit_log_file_bytes
        assert other.topics.min_offset(QUEUE) == 2 * A_FILE
    assert verify(store.root) == []


def test_two_that_clean_at_once_do_no_harm(store: MessageStore) -> None:
    fill(store, 12)
    with open_store(store.root, SMALL, housekeeping=False) as other:
        other.retention._pause = lambda _: force(store) and None
        other.disk.usage = lambda: Usage(99.0, 0)  # type: ignore[method-assign]
        while other.retention.clean():
            pass
    assert store.log_files.bases() == [11 * SMALL.commit_log_file_bytes]
    assert verify(store.root) == []


def test_a_flush_that_meets_a_file_just_removed_poisons_nothing(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a flush of a queue that has listed its files when retention removes some
    fill(store, 12)
    files = store.consume_queues[QUEUE].files
    listed = files.bases()
    monkeypatch.setattr(type(files), "bases", lambda queue: listed if queue is files else [0])
    files.remove(listed[0])
    store.flusher._flushed_queues.clear()
    store.flusher.flush_queues()
    assert not store.state.poisoned


def test_index_files_go_when_all_they_point_to_has_gone(tmp_path: Path) -> None:
    config = replace(SMALL, index_slots=16, index_entries=40)
    with open_store(tmp_path / "store", config, housekeeping=False) as store:
        appender = appender_of(store)
        ids = [appender.append(Message(TOPIC, bytes(BODY_BYTES), keys=["k"])).message_id for _ in range(150)]
        store.flusher.flush_thorough()
        store.build_index()
        before = store.index_files.paths()
        assert len(before) == 8, "39 entries a file, two for each message"
        force(store)

        # Then those stay that point to a message which is there, and queries find just these
        low = store.topics.min_offset(QUEUE)
        assert store.index_files.paths() == before[low * 2 // 39 :]
        assert len(store.messages_by_key(TOPIC, "k", limit=1_000)) == 150 - low
        assert store.message_by_id(ids[low - 1]) is None
        found = store.message_by_id(ids[low])
        assert found is not None
        assert found.queue_offset == low
        assert store.queue_offset_by_time(QUEUE, 0) == low
        assert verify(store.root) == []
    with open_store(tmp_path / "store", housekeeping=False) as again:
        assert again.message_by_id(ids[-1]) is not None


def test_a_damaged_index_file_stops_no_removal(store: MessageStore) -> None:
    fill(store, 3)
    store.build_index()
    short = store.index_files.paths()[0].with_name("20000101000000000")
    short.write_bytes(b"short")
    assert len(force(store)) == 2
    assert store.topics.min_offset(QUEUE) == 2 * A_FILE
    assert short.exists()


def test_an_index_that_is_behind_goes_on_at_the_oldest_record(store: MessageStore) -> None:
    fill(store, 5)
    force(store)
    last = appender_of(store).append(Message(TOPIC, b"last", keys=["k"]))
    assert [message.body for message in store.messages_by_key(TOPIC, "k")] == [b"last"]
    assert store.state.indexed_to == last.commit_log_end
    assert verify(store.root) == []


# --- readers and consumers ------------------------------------------------------------------------


@pytest.mark.guarantee("G12")
def test_a_consumer_that_is_behind_goes_on_at_the_oldest_message_and_knows_how_many_it_missed(
    store: MessageStore,
) -> None:
    # Given a consumer that has finished three messages, taken two more, and then slept
    fill(store, 5)
    grant = grant_of(store)
    first = grant.take(5, SPAN)
    assert grant.acknowledge_offsets([0, 1, 2])
    force(store)

    # Then it goes on at the oldest one
    low, high = store.topics.min_offset(QUEUE), store.topics.max_offset(QUEUE)
    assert low == 4 * A_FILE
    taken = grant.take(SPAN, SPAN)
    assert [message.queue_offset for message in taken] == list(range(low, high))
    assert (grant.expired, grant.damaged) == (low - 5, [])
    assert grant.committed_offset == low

    # And the late ones can be acknowledged, without effect
    assert grant.acknowledge(first[3])
    assert grant.acknowledge_offsets(list(range(low, high)))
    assert grant.committed_offset == high
    assert verify(store.root) == []


def test_a_message_finished_out_of_order_is_not_counted_as_missed(store: MessageStore) -> None:
    fill(store, 5)
    grant = grant_of(store)
    grant.take(10, SPAN)
    assert grant.acknowledge_offsets([4, 7, 4 * A_FILE])
    again = grant_of(store)
    force(store)
    taken = again.take(SPAN, SPAN)
    assert again.expired == 4 * A_FILE - 2
    assert taken[0].queue_offset == 4 * A_FILE + 1, "what was acknowledged above the minimum stays acknowledged"


def test_a_consumer_far_behind_jumps_over_more_than_the_bitmap(store: MessageStore) -> None:
    store.topics.create(TOPIC, 1)
    appender = appender_of(store)
    for _ in range(30):
        appender.append_batch([Message(TOPIC, bytes(100))] * 60)
    grant = grant_of(store)
    assert grant.take(1, SPAN)
    assert grant.acknowledge_offsets([0])
    for _ in range(60):
        appender.append_batch([Message(TOPIC, bytes(100))] * 60)
    store.flusher.flush_thorough()
    force(store)
    low = store.topics.min_offset(QUEUE)
    assert low > layout.ACK_WINDOW
    assert grant.take(1, SPAN)[0].queue_offset == low
    assert grant.expired == low - 1
    assert verify(store.root) == []


def test_a_consumer_meets_a_minimum_that_nobody_has_told_the_queue_of(store: MessageStore) -> None:
    # Given a housekeeper that was killed after it removed files and before it saw to the queues
    fill(store, 5)
    size = SMALL.commit_log_file_bytes
    grant = grant_of(store)
    assert len(grant.take(3, SPAN)) == 3  # has the first file mapped
    store.state.raise_min_offset(3 * size)
    for base in (0, size, 2 * size):
        store.log_files.remove(base)
    assert store.topics.min_offset(QUEUE) == 0

    # Then the consumer finds out by itself, and so does one that begins now
    for consumer in (grant, grant_of(store, "another")):
        assert consumer.take(1, SPAN)[0].queue_offset == 3 * A_FILE
        assert consumer.damaged == []
    assert store.topics.min_offset(QUEUE) == 3 * A_FILE


def test_an_old_owner_moves_no_offset(store: MessageStore) -> None:
    fill(store, 5)
    old = grant_of(store)
    new = grant_of(store)
    force(store)
    assert old.take(10, SPAN) == []
    assert new.committed_offset == 0
    assert new.take(1, SPAN)[0].queue_offset == 4 * A_FILE


@pytest.mark.guarantee("G12")
def test_beside_senders_and_removals_every_message_is_either_taken_or_counted_as_missed(store: MessageStore) -> None:
    # Given a sender and a removal that never rest, each with a handle of its own, and consumers of different speed
    with (
        open_store(store.root, SMALL, housekeeping=False) as removing,
        open_store(store.root, SMALL, housekeeping=False) as slow,
        ThreadPoolExecutor(4) as pool,
    ):
        store.topics.create(TOPIC, 1)
        grants = [grant_of(store, "quick"), grant_of(slow, "slow")]
        passes = Semaphore(0)
        sent = pool.submit(append_many, store, 3_000, passes)
        removed = pool.submit(remove_meanwhile, removing, sent, passes)
        consumed = [pool.submit(consume, grants[0], 200, sent), pool.submit(consume, grants[1], 1, sent)]
        assert removed.result(60) > 5
        for grant, offsets in zip(grants, consumed, strict=True):
            taken = offsets.result(60)
            assert taken == sorted(set(taken))
            assert len(taken) + grant.expired == 3_000
            assert grant.damaged == []
            assert grant.committed_offset == 3_000
        assert verify(store.root) == []


def append_many(store: MessageStore, messages: int, passes: Semaphore) -> None:
    """Append, and let the removal pass by now and then, so that it does on a busy machine, too."""
    appender = appender_of(store)
    for number in range(messages):
        appender.append(Message(TOPIC, bytes(BODY_BYTES)))
        if number % (messages // 10) == 0:
            assert passes.acquire(timeout=60)


def remove_meanwhile(store: MessageStore, sent: Future[None], passes: Semaphore) -> int:
    removed = 0
    while not sent.done():
        store.flusher.flush_queues()
        store.flusher.flush_log()
        removed += len(force(store))
        passes.release()
    return removed


def consume(grant: QueueGrant, batch: int, sent: Future[None]) -> list[int]:
    """Take and finish messages; what is taken is not old when it is finished."""
    taken: list[int] = []
    while not sent.done() or grant.has_more:
        offsets = [message.queue_offset for message in grant.take(batch, SPAN)]
        assert grant.acknowledge_offsets(offsets)
        taken += offsets
    return taken


def test_a_removed_message_is_told_from_a_damaged_one(store: MessageStore) -> None:
    fill(store, 5)
    first = store.message_at(QUEUE, 0)
    force(store)
    for offset in (0, 4 * A_FILE - 1):
        with pytest.raises(MessageExpired, match=f"begins at {4 * A_FILE} now"):
            store.message_at(QUEUE, offset)
    with pytest.raises(MessageExpired, match="was removed"):
        store.read(first.commit_log_offset)
    assert first.body == bytes(BODY_BYTES), "a message that was read stays readable"
    assert store.message_at(QUEUE, 4 * A_FILE).queue_offset == 4 * A_FILE


def test_whoever_prints_messages_goes_on_at_the_oldest_one(store: MessageStore) -> None:
    fill(store, 5)
    messages = Reader(store).tail(TOPIC, start="earliest", follow=False)
    assert next(messages).queue_offset == 0
    force(store)
    assert [message.queue_offset for message in messages][-1] == store.topics.max_offset(QUEUE) - 1
    again = Reader(store).tail(TOPIC, start="earliest", follow=False)
    assert next(again).queue_offset == 4 * A_FILE


def test_a_reader_without_locks_goes_on_at_the_oldest_record(store: MessageStore) -> None:
    fill(store, 5)
    steps = open_reader(store.root).steps()
    offsets = [next(steps)[0]]
    force(store)
    offsets += [offset for offset, _ in steps]
    assert offsets[1] == 4 * SMALL.commit_log_file_bytes


def test_the_lag_of_a_group_counts_what_is_there(store: MessageStore) -> None:
    fill(store, 5)
    grant_of(store, "slow")
    force(store)
    (lag,) = Admin(store).lag("slow")
    assert lag.lag == store.topics.max_offset(QUEUE) - 4 * A_FILE


# --- disk space -----------------------------------------------------------------------------------

HOLDER = """
import os, sys
from rmqclient.store import open_store
from tests.support.stores import SMALL, SPAN, QUEUE, grant_of
store = open_store(sys.argv[1], housekeeping=False)
taken = grant_of(store).take(SPAN, SPAN)
held = [store.log_files.mapping(base) for base in store.log_files.bases()]
print("mapped", flush=True)
for line in sys.stdin:
    print(sum(any(mapping[:64]) for mapping in map(memoryview, held)), flush=True)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256m", "none", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.guarantee("G12")
def test_the_space_comes_back_although_another_process_had_the_files_mapped(small_disk: Path) -> None:
    with open_store(small_disk / "store", SMALL, housekeeping=False) as store:
        fill(store, 40)
        command = [sys.executable, "-c", HOLDER, str(store.root)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            assert holder.stdout.readline() == "mapped\n"
            used = used_bytes(small_disk)
            assert len(force(store)) == 39
            wanted, held = used - 39 * SMALL.commit_log_file_bytes, ""
            for _ in range(500):
                print("look", file=holder.stdin, flush=True)  # a turn of the other process
                held = holder.stdout.readline()
                if held == "1\n" and used_bytes(small_disk) <= wanted:
                    break
            assert held == "1\n", "all but the newest are zeros to whoever still holds them"
            assert used_bytes(small_disk) <= wanted
            holder.stdin.close()
            assert holder.wait(10) == 0


def used_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


# --- the housekeeper, and the log of what happened ------------------------------------------------


def test_what_was_removed_is_said(store: MessageStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    fill(store, 3)
    force(store)
    assert "removed 2 commit log files, from 0 on" in caplog.text


def test_recovery_after_everybody_died_begins_at_the_oldest_file(store: MessageStore) -> None:
    fill(store, 6)
    force(store)
    appender_of(store).append(Message(TOPIC, b"last"))
    low, high = store.topics.min_offset(QUEUE), store.topics.max_offset(QUEUE)
    abandon(store)
    (store.root / "shared").unlink()  # as after a reboot
    with open_store(store.root, housekeeping=False) as again:
        assert (again.topics.min_offset(QUEUE), again.topics.max_offset(QUEUE)) == (low, high)
        assert again.message_at(QUEUE, high - 1).body == b"last"
    assert reference.check_store(store.root) == []
