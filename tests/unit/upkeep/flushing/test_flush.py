"""Flushing: who is the leader, who waits, what is recorded, and what the first failure means for everybody."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rmqclient.store import Durability, Message, MessageStore, StoreConfig, clock, open_store
from rmqclient.store.errors import StoreBusy
from rmqclient.store.upkeep import flush, group_commit
from rmqclient.store.upkeep.housekeeper import Housekeeper
from rmqclient.store.upkeep.timetable import Every
from tests.crash.processes.nursery import notes_of
from tests.crash.processes.order import Order
from tests.support.host.forking import ROOT
from tests.support.stores import SMALL
from tests.unit.upkeep.flushing.flushed import SYNC, Disk, mark, producer_of, queue_of, started


@pytest.mark.guarantee("G2")
def test_each_durable_send_is_flushed_before_it_returns(store: MessageStore, disk: Disk) -> None:
    producer = producer_of(store)
    for number in range(1, 4):
        result = producer.send(Message("t", b"body"))
        assert store.state.flushed_to == result.commit_log_end
        assert disk.flushes.count("0" * 20) == number
    results = producer.send_batch([Message("t", b"body")] * 10)
    assert store.state.flushed_to == results[-1].commit_log_end
    assert disk.flushes.count("0" * 20) == 4


@pytest.mark.guarantee("G2")
def test_a_roll_flushes_both_files_and_their_names(store: MessageStore, disk: Disk) -> None:
    producer = producer_of(store)
    while len(store.log_files.bases()) < 2:
        disk.flushes.clear()
        producer.send(Message("t", bytes(2_000)))
    assert disk.flushes == [f"{0:020d}", f"{SMALL.commit_log_file_bytes:020d}", "commitlog"]


def test_a_send_that_is_not_durable_flushes_nothing(store: MessageStore, disk: Disk) -> None:
    producer_of(store, SMALL).send(Message("t", b"body"))
    assert disk.flushes == []


@pytest.mark.guarantee("G2")
def test_senders_that_wait_for_a_leader_share_the_next_flush(
    store: MessageStore, other: MessageStore, disk: Disk
) -> None:
    # Given a leader in the middle of a flush
    disk.may_leave = threading.Semaphore(0)
    leader = started(lambda: producer_of(store).send(Message("t", b"leader")))
    assert disk.entered.acquire(timeout=60)
    covered = store.state.published_to
    assert store.state.flushed_to < covered

    # When six more send, through this handle and another one
    followers = [started(partial(send_one, each)) for each in (store, other) * 3]
    while len(queue_of(store)) < 7:
        pass
    assert all(thread.is_alive() for thread in followers)

    # Then the leader's flush does not let them go, because it began before they were stored
    for _ in range(2):  # the file, and its name
        disk.may_leave.release()
    leader.join(60)
    assert store.state.flushed_to == covered

    # And one more flush is for all of them
    for _ in range(20):
        disk.may_leave.release()
    for thread in followers:
        thread.join(60)
    assert store.state.flushed_to == store.state.published_to
    assert disk.flushes.count("0" * 20) == 2


@pytest.mark.guarantee("G2")
def test_senders_in_several_processes_return_only_when_flushed(store: MessageStore, tmp_path: Path) -> None:
    orders = [
        Order(scenario="append_durably", root=str(store.root), notes=str(tmp_path / f"notes{number}"))
        for number in range(3)
    ]
    command = [sys.executable, "-m", "tests.crash.processes.child"]
    children = [subprocess.Popen([*command, order.text()], cwd=ROOT) for order in orders]
    while any(len(notes_of(order)) < 20 for order in orders):
        assert all(child.poll() is None for child in children)
    for child in children:
        child.send_signal(signal.SIGKILL)
        child.wait()
    for order in orders:
        assert all(int(line.split()[1]) >= 0 for line in notes_of(order)[:-1])


def test_whoever_waits_too_long_for_a_leader_is_told_that_the_message_is_stored(
    store: MessageStore, disk: Disk
) -> None:
    config = replace(SYNC, lock_timeout_ms=50)
    with open_store(store.root, config, housekeeping=False) as impatient:
        disk.may_leave = threading.Semaphore(0)
        leader = started(lambda: producer_of(store).send(Message("t", b"leader")))
        assert disk.entered.acquire(timeout=60)
        with pytest.raises(StoreBusy, match="stored and not yet durable"):
            producer_of(impatient, config).send(Message("t", b"follower"))
        for _ in range(10):
            disk.may_leave.release()
        leader.join(60)
        disk.may_leave = None
    assert len(queue_of(store)) == 2


def test_a_timed_flush_waits_for_enough_pages(store: MessageStore, disk: Disk) -> None:
    producer = producer_of(store, SMALL)
    assert not store.flusher.flush()
    producer.send(Message("t", b"body"))
    assert not store.flusher.flush(4)
    while store.state.published_to < 4 * group_commit.PAGE_BYTES:
        assert disk.flushes == []
        assert not store.flusher.flush(4)
        producer.send(Message("t", bytes(1_000)))
    assert store.flusher.flush(4)
    assert store.state.flushed_to == store.state.published_to
    producer.send(Message("t", b"body"))
    assert store.flusher.flush()


def test_a_file_that_is_full_is_flushed_however_little_is_dirty(store: MessageStore, disk: Disk) -> None:
    producer = producer_of(store, SMALL)
    while len(store.log_files.bases()) < 2:
        store.flusher.flush()
        producer.send(Message("t", bytes(2_000)))
    assert store.flusher.flush(4)


def test_the_intervals_and_page_counts_are_those_of_rocketmq() -> None:
    config = StoreConfig()
    assert (config.flush.interval_ms, flush.LEAST_PAGES, config.flush.thorough_interval_ms) == (500, 4, 10_000)
    queues = (flush.QUEUES_INTERVAL_MS, flush.QUEUES_LEAST_PAGES, config.flush.queues_interval_ms)
    assert queues == (1_000, 2, 60_000)
    assert (config.commit_interval_ms, config.page_cache_busy_timeout_ms) == (200, 1_000)


def test_each_task_of_the_housekeeper_has_its_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: dict[str, int | Every] = {}

    def look(_: object, state: object, lock: object, given: dict[Callable[[], None], int | Every], *do: object) -> None:
        assert state
        assert lock
        assert do
        tasks.update({task.__qualname__: every for task, every in given.items()})

    monkeypatch.setattr(Housekeeper, "__init__", look)
    for method in ("start", "close"):
        monkeypatch.setattr(Housekeeper, method, lambda _: None)
    with open_store(tmp_path / "another"):
        pass
    assert tasks.items() >= {
        ("Flusher.flush_timed", 500),
        ("Flusher.flush_log", 10_000),
        ("Flusher.flush_queues_timed", 1_000),
        ("Flusher.flush_thorough", 60_000),
        ("Disk.look", Every(1_000, 0)),
        ("Retention.run", Every(10_000, 60_000, clock.elapsed_ns)),
    }


TWO_PAGES = 2 * group_commit.PAGE_BYTES // 20
"""Entries that do not quite fill two pages."""


@pytest.fixture
def large(tmp_path: Path) -> Iterator[MessageStore]:
    """A store whose queue files have room for two pages of entries."""
    config = StoreConfig(commit_log_file_bytes=1 << 20, max_body_bytes=2_048, consume_queue_file_entries=1_000)
    with open_store(tmp_path / "large", config, housekeeping=False) as opened:
        yield opened


def test_a_consume_queue_waits_for_two_pages_or_the_thorough_flush(large: MessageStore, disk: Disk) -> None:
    producer = producer_of(large, large.config)
    producer.create_topic("t", 1)
    producer.send_batch([Message("t", b"")] * TWO_PAGES)
    large.flusher.flush_queues_timed()
    assert large.flusher._flushed_queues == [0]
    producer.send(Message("t", b""))
    large.flusher.flush_queues_timed()
    assert large.flusher._flushed_queues == [TWO_PAGES + 1]
    producer.send(Message("t", b""))
    large.flusher.flush_queues_timed()
    assert large.flusher._flushed_queues == [TWO_PAGES + 1]
    large.flusher.flush_queues()
    assert large.flusher._flushed_queues == [TWO_PAGES + 2]


def test_a_consume_queue_file_that_is_full_is_flushed_however_little_is_dirty(large: MessageStore, disk: Disk) -> None:
    producer = producer_of(large, large.config)
    producer.create_topic("t", 1)
    producer.send_batch([Message("t", b"")] * 999)
    large.flusher.flush_queues()
    producer.send(Message("t", b""))
    large.flusher.flush_queues_timed()
    assert large.flusher._flushed_queues == [1_000]


def test_the_mark_says_only_what_all_queues_have_on_disk(large: MessageStore) -> None:
    # Given two queues, of which one has enough entries for the timed flush
    producer = producer_of(large, large.config)
    producer.create_topic("busy", 1)
    producer.create_topic("quiet", 1)
    producer.send(Message("quiet", b""))
    producer.send_batch([Message("busy", b"")] * (TWO_PAGES + 1))
    large.flusher.flush_queues_timed()
    large.flusher.flush_log()
    assert large.flusher._flushed_queues == [TWO_PAGES + 1, 0]
    assert mark(large).dispatched_to == 0
    large.flusher.flush_thorough()
    assert mark(large).dispatched_to == large.state.published_to


def test_a_small_durable_send_writes_the_next_pages_too_and_those_after_it_do_not(large: MessageStore) -> None:
    # Given a sender that waits for the disk, then the file has zeros ahead until the log has passed them
    producer = producer_of(large, replace(large.config, durability=Durability.SYNC))
    result = producer.send(Message("t", b"body"))
    zeroed_to = group_commit.PAGE_BYTES + group_commit.ZEROED_BYTES
    while result.commit_log_end <= zeroed_to:
        assert large.state.zeroed_to == zeroed_to
        assert written_bytes(large.log_files.path(0)) == zeroed_to
        result = producer.send(Message("t", bytes(2_000)))
    assert large.state.zeroed_to == written_bytes(large.log_files.path(0)) > zeroed_to + group_commit.ZEROED_BYTES
    # And sends that nobody waits for make no more of them
    zeroed_to = large.state.zeroed_to
    while producer_of(large, large.config).send(Message("t", bytes(2_000))).commit_log_end <= zeroed_to:
        pass
    assert large.flusher.flush()
    assert large.state.zeroed_to == zeroed_to


def test_zeros_are_written_no_further_than_the_file(large: MessageStore) -> None:
    producer = producer_of(large, replace(large.config, durability=Durability.SYNC))
    file_bytes = large.config.commit_log_file_bytes
    while (end := producer.send(Message("t", bytes(2_000))).commit_log_end) < file_bytes:
        assert end <= large.state.zeroed_to or end > file_bytes - group_commit.PAGE_BYTES
        assert large.state.zeroed_to <= file_bytes
    assert file_bytes < end <= large.state.zeroed_to


def test_durable_sends_touch_no_page_further_than_they_write(tmp_path: Path) -> None:
    # A page that is read ahead shares a folio with others, and all of a folio is written when one byte of it is new
    config = StoreConfig(commit_log_file_bytes=16 << 20, durability=Durability.SYNC)
    with open_store(tmp_path / "another", config, housekeeping=False) as store:
        producer = producer_of(store, config)
        for _ in range(3):
            end = producer.send_batch([Message("t", bytes(100))] * 1_000)[-1].commit_log_end
            pages = max(end, store.state.zeroed_to) // group_commit.PAGE_BYTES + 1
            assert resident_pages(store.log_files.path(0)) <= pages


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_the_next_file_is_in_the_page_cache_when_that_is_asked_for(tmp_path: Path, warm: bool) -> None:
    config = StoreConfig(commit_log_file_bytes=4 << 20, max_body_bytes=2_048, warm_mapped_files=warm)
    with open_store(tmp_path / "another", config, housekeeping=False) as store:
        producer_of(store, config).send(Message("t", b"first"))
        store.appenders.prepare_next_file()
        assert store.log_files.bases() == [0, 4 << 20]
        resident = resident_pages(store.log_files.path(4 << 20))
        assert resident == (1_024 if warm else 0)
        store.appenders.prepare_next_file()  # it is there: nothing happens
        assert store.log_files.bases() == [0, 4 << 20]


def resident_pages(path: Path) -> int:
    """Return how many pages of a file the page cache has, without touching one."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = path.stat().st_size
    pages = ctypes.create_string_buffer(size // group_commit.PAGE_BYTES)
    with path.open("rb") as file:
        address = library.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    assert library.mincore(address, size, pages) == 0
    library.munmap(address, size)
    return sum(page & 1 for page in pages.raw)


def written_bytes(path: Path) -> int:
    """Return how many bytes from its begin on a file has in blocks that were written, by FS_IOC_FIEMAP.

    The test is skipped on a file system that does not say.
    """
    head, one = struct.Struct("=QQIIII"), struct.Struct("=QQQ16xI12x")
    answer = bytearray(head.size + 64 * one.size)
    head.pack_into(answer, 0, 0, path.stat().st_size, 0, 0, 64, 0)
    with path.open("rb") as file:
        try:
            fcntl.ioctl(file, 0xC020660B, answer)
        except OSError as error:
            pytest.skip(f"FIEMAP: {error}")
    written = 0
    for begin, _, size, flags in one.iter_unpack(answer[head.size :][: one.size * head.unpack_from(answer)[3]]):
        if begin == written and not flags & 0x0800:  # FIEMAP_EXTENT_UNWRITTEN
            written += size
    return written


def send_one(store: MessageStore) -> None:
    producer_of(store).send(Message("t", b""))
