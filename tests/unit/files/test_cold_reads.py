"""Files that are read without mapping them: a file that was shortened, and a real disk that cannot read.

Each look at a store runs in a process of its own: where a mapping is used after all, it ends by SIGBUS.
"""

from __future__ import annotations

import faulthandler
import io
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from rmqclient.store import TagSet, open_store
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.cold_reads import ColdReads
from rmqclient.store.files.file_queue import FileQueue, MappingCache
from rmqclient.store.inspect import dump, reading, verify
from rmqclient.store.log import commit_log
from rmqclient.store.log.consume_queue import ConsumeQueues
from rmqclient.store.log.record import Record
from rmqclient.store.recovery import log_scan, recovery
from rmqclient.store.recovery.recovery import FirstSteps
from rmqclient.workers.exit_codes import in_words
from tests.support.oracle import reference
from tests.support.written import ORDERS, SMALL, fill, written_store

FILE_BYTES = SMALL.commit_log_file_bytes
PAGE = 4_096
BAD_PAGE = 3
"""Page of the first commit log file that the disk cannot read."""

FIRST = f"commitlog/{0:020d}"
IN_A_FORK = get_context("fork")


def outcome_in_a_child(look: Callable[[], object]) -> str:
    """Run ``look`` in a process; return the text of what it returns or raises. Fails when the process is killed."""
    receiver, sender = IN_A_FORK.Pipe(duplex=False)

    def run() -> None:
        try:
            sender.send(str(look()))
        except StoreCorrupt as error:
            sender.send(f"StoreCorrupt: {error}")

    child = IN_A_FORK.Process(target=run)
    child.start()
    sender.close()
    try:
        return str(receiver.recv())
    except EOFError:
        child.join()
        pytest.fail(f"the process that looked: {in_words(child.exitcode)}")
    finally:
        child.join()


# --- a file that is shortened while somebody reads it ---------------------------------------------


def test_a_file_that_is_shortened_under_a_walk_is_an_error_with_its_place(tmp_path: Path) -> None:
    written_store(tmp_path)
    files = FileQueue(tmp_path / "commitlog", FILE_BYTES, scratch=tmp_path, mappings=MappingCache(1))

    def look() -> str:
        steps = commit_log.walk(files, 0)
        next(steps)
        os.truncate(tmp_path / FIRST, 2 * PAGE)
        return str(list(steps))

    assert outcome_in_a_child(look) == (
        f"StoreCorrupt: {tmp_path / FIRST}, byte {2 * PAGE}: the file ends here and was opened with {FILE_BYTES} bytes"
    )


def test_a_file_that_is_shortened_under_a_dump_is_stepped_over(tmp_path: Path) -> None:
    written_store(tmp_path)

    def look() -> str:
        reader = reading.open_reader(tmp_path)
        steps = reader.steps()
        kept = [next(steps)]
        os.truncate(tmp_path / FIRST, 2 * PAGE)
        kept += steps
        bad = [step for _, step in kept if isinstance(step, log_scan.Quarantined)]
        return f"{len(bad)} {bad[0].reason}, {bad[0].end == FILE_BYTES}"

    assert outcome_in_a_child(look) == "1 sizes do not add up, or a number is negative, True"  # zeros are read there


def test_a_message_in_a_file_that_was_shortened_is_an_error_with_its_place(tmp_path: Path) -> None:
    def look() -> object:
        store = open_store(tmp_path, SMALL, housekeeping=False)  # never closed: that would index what is missing
        fill(store)
        (queue,) = store.topics.queues(ORDERS)
        assert store.messages.at(queue, 30).queue_offset == 30
        os.truncate(tmp_path / FIRST, 2 * PAGE)
        return store.messages.at(queue, 30)

    text = outcome_in_a_child(look)
    assert text.startswith(f"StoreCorrupt: {tmp_path / FIRST}, byte ")
    assert text.endswith(f"the file ends here and was opened with {FILE_BYTES} bytes")


def test_a_message_whose_consume_queue_file_is_missing_is_an_error_with_its_place(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL, housekeeping=False) as store:
        fill(store)
        (queue,) = store.topics.queues(ORDERS)
        store.consume_queues[queue].files.remove(0)
        with pytest.raises(StoreCorrupt, match=r"consumequeue/orders/0/0{20}, byte 40: the file is missing"):
            store.messages.at(queue, 2)


def test_who_reads_through_a_mapping_is_killed_and_it_is_said_why(tmp_path: Path) -> None:
    written_store(tmp_path)

    def consume() -> None:
        faulthandler.disable()
        with open_store(tmp_path, housekeeping=False) as store:
            (queue,) = store.topics.queues(ORDERS)
            slot = store.groups.find_or_add("readers", store.topics.slot(queue), 0)
            grant = store.grants.grant(slot, 0, TagSet(()))
            grant.take(1, 2_000)
            os.truncate(tmp_path / FIRST, PAGE)
            grant.take(500, 2_000)

    child = IN_A_FORK.Process(target=consume)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGBUS
    assert in_words(child.exitcode) == "killed by SIGBUS: a store file was shortened or cannot be read"


# --- descriptors ----------------------------------------------------------------------------------


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_no_more_files_stay_open_than_the_limit_says_and_none_when_they_are_forgotten(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(20)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * 100)
    before = open_files()
    reads = ColdReads(limit=3)
    for _ in range(2):
        for number, path in enumerate(paths):
            assert reads.read(str(path), 100, 90, 50) == bytes([number]) * 10
            assert open_files() <= before + 3
    reads.drop(str(paths[-1]))
    assert open_files() == before + 2
    reads.clear()
    assert open_files() == before


def test_a_file_of_another_size_is_not_read_and_not_left_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(99))
    before = open_files()
    with pytest.raises(StoreCorrupt, match="has 99 bytes instead of 100"):
        ColdReads().read(str(tmp_path / "file"), 100, 0, 1)
    with pytest.raises(FileNotFoundError):
        ColdReads().read(str(tmp_path / "missing"), 100, 0, 1)
    assert open_files() == before


def test_what_was_reserved_and_never_written_to_is_known_to_be_zero(tmp_path: Path) -> None:
    path, size = tmp_path / "file", 64 * PAGE
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        os.pwrite(file.fileno(), b"x", 10 * PAGE + 7)
    reads = ColdReads()
    begin = reads.data_begin(str(path), size, 0)
    assert 0 <= begin <= 10 * PAGE + 7 < reads.data_end(str(path), size, begin) <= size
    assert reads.data_begin(str(path), size, size) == size
    assert reads.data_end(str(path), size, size) == size


# --- a record that is looked at again -------------------------------------------------------------


def test_a_buffer_is_filled_as_far_as_the_file_goes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    buffer = memoryview(bytearray(60))
    exact, longer = ColdReads(), ColdReads(any_size=True)
    assert exact.read_into(str(path), 100, 30, buffer) == 60
    assert bytes(buffer) == bytes(range(30, 90))
    assert exact.read_into(str(path), 100, 90, buffer) == 10
    assert bytes(buffer[:10]) == bytes(range(90, 100))
    assert exact.read_into(str(path), 100, 100, buffer) == 0
    assert longer.read_into(str(path), 140, 90, buffer) == 50
    assert bytes(buffer[:50]) == bytes(range(90, 100)) + bytes(40)
    os.truncate(path, 40)
    with pytest.raises(StoreCorrupt, match="byte 40: the file ends here"):
        exact.read_into(str(path), 100, 30, buffer)


@pytest.mark.parametrize("zeros", range(4))
def test_a_record_is_found_behind_a_hole_that_holds_the_zeros_it_begins_with(tmp_path: Path, zeros: int) -> None:
    written_store(tmp_path)
    files = FileQueue(tmp_path / "commitlog", FILE_BYTES, scratch=tmp_path, mappings=MappingCache(1))
    whole = reference.encode(reference.ReferenceRecord(topic="Orders", commit_log_offset=2 * PAGE - zeros))
    path = tmp_path / FIRST
    path.unlink()
    with path.open("wb") as file:
        file.truncate(FILE_BYTES)
        file.seek(2 * PAGE)
        file.write(whole[zeros:])
    assert commit_log.next_record(files, 1, FILE_BYTES) == 2 * PAGE - zeros


def test_what_was_no_record_when_the_reader_passed_is_seen_when_it_has_become_one(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL, housekeeping=False) as store:
        fill(store, 3)
        reader = commit_log.LogReader(store.log_files)
        end = store.state.published_to
        assert isinstance(reader.outcome(0), Record)
        assert not isinstance(reader.outcome(end), Record)
        assert isinstance(reader.outcome(0), Record)
        fill(store, 3)
        assert isinstance(reader.outcome(end), Record)


# --- a disk that cannot read ----------------------------------------------------------------------


@pytest.fixture
def bad_disk(tmp_path: Path) -> Iterator[Path]:
    """A store whose first commit log file stands on a disk that cannot read one of its pages."""
    missing = [name for name in ("nbdfuse", "nbdkit", "fusermount3") if shutil.which(name) is None]
    if missing or not Path("/dev/fuse").exists():
        pytest.skip(f"needs {', '.join(missing or ['/dev/fuse'])}")
    root = written_store(tmp_path / "store")
    source = tmp_path / "source"
    (root / FIRST).rename(source)
    rest = [path for path in (root / "commitlog").iterdir() if path.name != Path(FIRST).name]
    for path in rest:
        path.unlink()
    start, end = BAD_PAGE * PAGE, (BAD_PAGE + 1) * PAGE
    pread = (
        f"if [ $4 -lt {end} ] && [ $(($4 + $3)) -gt {start} ]; then echo EIO bad sector >&2; exit 1; fi; "
        f"dd if={source} skip=$4 count=$3 iflag=count_bytes,skip_bytes status=none"
    )
    command = ["nbdkit", "-s", "--exit-with-parent", "eval", f"get_size=echo {FILE_BYTES}", f"pread={pread}"]
    disk = subprocess.Popen(["nbdfuse", root / FIRST, "--command", *command], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not (root / FIRST).exists():
            assert disk.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield root
    finally:
        subprocess.run(["fusermount3", "-u", root / "commitlog"], check=False)
        disk.wait(20)


def test_the_disk_of_these_tests_fails(bad_disk: Path) -> None:
    with (bad_disk / FIRST).open("rb", buffering=0) as file:
        assert os.pread(file.fileno(), 8, 0)[4:] == bytes.fromhex("daa320a7")
        with pytest.raises(OSError, match="Input/output error"):
            os.pread(file.fileno(), 8, BAD_PAGE * PAGE)


def test_what_a_disk_cannot_read_is_reported_by_verify_and_stepped_over_by_dump(bad_disk: Path) -> None:
    def look() -> object:
        lines = io.BytesIO()
        sentences = [*dump.dump(bad_disk, lines)]
        steps = [*reading.open_reader(bad_disk).steps()]
        records = [offset for offset, step in steps if isinstance(step, Record)]
        bad = next(step for _, step in steps if isinstance(step, log_scan.Quarantined))
        assert bad.start <= BAD_PAGE * PAGE
        assert bad.end == min(offset for offset in records if offset >= (BAD_PAGE + 1) * PAGE)
        assert lines.getvalue().count(b"\n") == len(records)
        return "\n".join([*map(str, verify.verify(bad_disk)), *sentences])

    text = outcome_in_a_child(look)
    assert re.search(
        rf"1  {bad_disk / FIRST}, byte \d+: cannot be read: Input/output error: \d+ bytes are not a rec", text
    )
    assert re.search(r"6  .* points to no record: cannot be read: Input/output error", text)
    assert re.search(r"\(cannot be read: Input/output error\): skipped", text)


def test_a_message_that_a_disk_cannot_read_is_an_error_with_its_place(bad_disk: Path) -> None:
    files = FileQueue(bad_disk / "commitlog", FILE_BYTES, scratch=bad_disk, mappings=MappingCache(1))
    good: list[int] = []

    def look() -> object:
        offset = 0
        while True:
            offset += commit_log.read(files, offset).size
            good.append(offset)
            assert offset < FILE_BYTES

    text = outcome_in_a_child(look)
    assert text == f"StoreCorrupt: {bad_disk / FIRST}, byte {BAD_PAGE * PAGE}: cannot be read: Input/output error"


def test_recovery_refuses_what_a_disk_cannot_read(bad_disk: Path) -> None:
    (bad_disk / "checkpoint").unlink()

    def survey() -> object:
        mappings = MappingCache(1)
        files = FileQueue(bad_disk / "commitlog", FILE_BYTES, scratch=bad_disk, mappings=mappings)
        return recovery.survey(
            bad_disk, files, ConsumeQueues(bad_disk, SMALL.consume_queue_file_bytes, mappings), FirstSteps()
        )

    assert outcome_in_a_child(survey).startswith(f"StoreCorrupt: {bad_disk / FIRST}, byte {BAD_PAGE * PAGE}: cannot be")
