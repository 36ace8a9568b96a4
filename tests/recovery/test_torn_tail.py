"""Torn tails: whatever part of the last records did not reach the disk, the log ends before the first torn one.

Above the durable mark it is cut there. Below the mark, or below what a runtime file of this boot says was published,
the same bytes are damage: they are kept, and what follows is served.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import Message, open_store
from rmqclient.store.repair import planned
from rmqclient.store.settings import checkpoint
from tests.recovery.scenes import FILE_BYTES, Written, copy, log_path
from tests.support.oracle import reference
from tests.support.stores import abandon
from tests.support.sweeps import each_step, is_taken
from tests.support.written import ORDERS, SMALL, appender_of

SECTOR = 512
FLUSHED = 4
"""Messages below the durable mark."""

TORN = 3
"""Records at the end that may be torn."""

BODIES = [b"%d;" % number * length for number, length in enumerate((50, 50, 50, 50, 30, 150, 500))]

pytestmark = [pytest.mark.guarantee("G1"), pytest.mark.guarantee("G5")]


@pytest.fixture(scope="module")
def tail(directory: Path) -> Path:
    """Return a store after a reboot: three records of some sectors above the durable mark, all on the disk."""
    root = directory / "tail"
    store = open_store(root, SMALL, housekeeping=False)
    appender = appender_of(store)
    for number, body in enumerate(BODIES):
        if number == FLUSHED:
            store.flusher.flush_thorough()
        appender.append(Message(ORDERS, body))
    abandon(store)
    (root / "shared").unlink()
    return root


@pytest.fixture
def image(target: Path, tail: Path) -> Path:
    """Return one copy, whose files :func:`put_back` makes as they were."""
    return Path(shutil.copytree(tail, target))


def put_back(image: Path, tail: Path) -> bytearray:
    """Make a copy again what it was; return the content of its log."""
    for part in ("consumequeue", "config", "checkpoint", "abort", "shared", "quarantined"):
        path = image / part
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if (tail / part).is_dir():
            shutil.copytree(tail / part, path)
        elif (tail / part).exists():
            shutil.copy2(tail / part, path)
    return bytearray(log_path(tail, 0).read_bytes())


def check_ends_before(image: Path, whole: int, end: int, torn: bool) -> None:
    """Look at the plan, open, append, and look at the files: ``whole`` messages are left, and nothing of the others."""
    plan = planned(image)
    assert f"commit log from 0 to {end}" in plan
    assert any(line.startswith(f"cut at {end}") for line in plan) == torn, plan
    assert not any(line.startswith("quarantine") for line in plan)
    store = open_store(image, housekeeping=False)
    assert appender_of(store).append(Message(ORDERS, b"after")).queue_offset == whole
    abandon(store)
    assert [record.body for _, record in reference.read_commit_log(image)] == [*BODIES[:whole], b"after"]
    assert reference.check_store(image) == []


@each_step
@pytest.mark.parametrize("left", ["zeros", "rubbish"])
def test_every_length_of_the_last_three_records_is_cut(
    image: Path, tail: Path, left: str, steps: frozenset[int]
) -> None:
    records = reference.read_commit_log(tail)
    end = records[-1][0] + records[-1][1].size
    for whole in range(FLUSHED, FLUSHED + TORN):
        offset, record = records[whole]
        for length in range(record.size):
            if not is_taken(length, steps):
                continue
            log = put_back(image, tail)
            rest = log[offset + length : end]
            log[offset + length : end] = bytes(len(rest)) if left == "zeros" else rubbish(rest)
            log_path(image, 0).write_bytes(log)
            check_ends_before(image, whole, offset, any(log[offset:end]))


def rubbish(rest: bytes | bytearray) -> bytes:
    """Return other bytes, some of them zero: properties of which none is could be those of a 4.9 broker's record."""
    return bytes(byte ^ 0xA5 if number % 16 else 0 for number, byte in enumerate(rest))


def test_every_zeroed_sector_of_the_last_three_records_is_cut(image: Path, tail: Path) -> None:
    records = reference.read_commit_log(tail)
    start, end = records[FLUSHED][0], records[-1][0] + records[-1][1].size
    intact = log_path(tail, 0).read_bytes()
    for sector in range(start - start % SECTOR, end, SECTOR):
        log = put_back(image, tail)
        lost = slice(max(sector, start), min(sector + SECTOR, end))
        log[lost] = bytes(lost.stop - lost.start)
        log_path(image, 0).write_bytes(log)
        whole = next(
            number
            for number, (offset, record) in enumerate(records)
            if log[offset : offset + record.size] != intact[offset : offset + record.size]
        )
        check_ends_before(image, whole, records[whole][0], any(log[records[whole][0] : end]))


def test_every_subset_of_lost_sectors_of_the_last_record_is_cut(image: Path, tail: Path) -> None:
    records = reference.read_commit_log(tail)
    offset, record = records[-1]
    end = offset + record.size
    sectors = range(offset - offset % SECTOR, end, SECTOR)
    assert len(sectors) == 3
    for lost in range(1, 2 ** len(sectors)):
        log = put_back(image, tail)
        for number, sector in enumerate(sectors):
            if lost >> number & 1:
                part = slice(max(sector, offset), min(sector + SECTOR, end))
                log[part] = bytes(part.stop - part.start)
        log_path(image, 0).write_bytes(log)
        check_ends_before(image, len(records) - 1, offset, any(log[offset:end]))


def test_stale_bytes_behind_a_cut_never_come_back(image: Path, tail: Path) -> None:
    # Given a record torn near its end, and good records behind it
    records = reference.read_commit_log(tail)
    offset, record = records[FLUSHED]
    log = put_back(image, tail)
    log[offset + record.size - 1] ^= 1
    log_path(image, 0).write_bytes(log)

    # When it was cut, and shorter messages take its place, with a crash after each
    for number in range(6):
        store = open_store(image, housekeeping=False)
        assert appender_of(store).append(Message(ORDERS, b"short")).queue_offset == FLUSHED + number
        abandon(store)
        (image / "shared").unlink()

    # Then nothing of the old records is found by anybody
    bodies = [found.body for _, found in reference.read_commit_log(image)]
    assert bodies == [*BODIES[:FLUSHED], *[b"short"] * 6]
    content = log_path(image, 0).read_bytes()
    assert all(body not in content for body in BODIES[FLUSHED:])
    assert reference.check_store(image) == []


@pytest.mark.parametrize("way", ["closed", "copied"])
def test_below_the_mark_every_lost_sector_is_damage_and_not_a_tail(
    original: Path, written: Written, target: Path, way: str
) -> None:
    # Given a sector of the last file lost, of records that were durable
    base = written[-1][0] // FILE_BYTES * FILE_BYTES
    end = written[-1][0] + written[-1][1].size
    for sector in range(base, end, SECTOR):
        root = copy(original, way, target)
        (root / "checkpoint").write_bytes(all_read_again(root))
        log = bytearray(log_path(root, base).read_bytes())
        stop = min(sector + SECTOR, end)
        log[sector - base : stop - base] = bytes(stop - sector)
        log_path(root, base).write_bytes(log)

        # Then just the records in it are quarantined, as one range, and the log ends where it ended
        hit = [(offset, record) for offset, record in written if offset < stop and offset + record.size > sector]
        plan = planned(root)
        assert f"commit log from 0 to {end}" in plan
        assert next(line for line in plan if line.startswith("quarantine")).startswith(
            f"quarantine bytes {hit[0][0]} to {hit[-1][0] + hit[-1][1].size}"
        )
        assert not any(line.startswith("cut") for line in plan)
        store = open_store(root, housekeeping=False)
        assert store.state.published_to == end
        abandon(store)
        damaged = log_path(root, base).read_bytes()
        assert damaged[: end - base] == bytes(log[: end - base])


def all_read_again(root: Path) -> bytes:
    """Return a checkpoint whose mark says that all is flushed and nothing is dispatched."""
    marks, low_water = checkpoint.read(root)
    assert low_water is not None
    checkpoint.write(root, marks, replace(low_water, sequence=low_water.sequence + 1, dispatched_to=0, queue_ends=0))
    return (root / "checkpoint").read_bytes()
