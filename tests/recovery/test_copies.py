"""Stores that were moved, copied to another machine, or copied while they were in use."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from rmqclient.store import open_store
from rmqclient.store.files.mapped_file import SCRATCH_PREFIX
from rmqclient.store.inspect import verify
from rmqclient.store.inspect.reading import open_reader
from rmqclient.store.runtime import shared_state
from tests.recovery.scenes import QUEUES, Expected, Written, check, copy, deliveries
from tests.support.oracle import reference
from tests.support.written import GROUP, RMQ_STORE, SMALL, TOP, appending, written_store

BEING_MADE = re.compile(rf"/{re.escape(SCRATCH_PREFIX)}|\.tmp\b")
"""What is in a name that a file has until it is whole."""


def test_a_moved_store_is_the_same_store(original: Path, written: Written, target: Path, way: str) -> None:
    root = copy(original, way, target)
    moved = root.with_name("moved")
    root.rename(moved)
    check(moved, Expected(written=written))


def test_a_moved_store_keeps_its_acknowledgements(target: Path) -> None:
    # Given a group that finished messages out of order, and a store that was only renamed
    written_store(target)
    moved = target.with_name("moved")
    target.rename(moved)

    # Then these are not delivered again
    with open_store(moved, housekeeping=False) as store:
        slot = store.groups.find(GROUP, store.topics.slot(QUEUES[0]))
        assert slot is not None
        assert slot.committed_offset == 20
        assert [offset for offset in range(2_048) if slot.acknowledged_bits() >> offset & 1] == [25, 26]


def test_a_copy_has_the_committed_offsets_and_not_the_locks(original: Path, target: Path) -> None:
    root = copy(original, "copied", target)
    with open_store(original, housekeeping=False), open_store(root, housekeeping=False) as copied:
        slot = copied.groups.find(GROUP, copied.topics.slot(QUEUES[0]))
        assert slot is not None
        assert (slot.committed_offset, slot.acknowledged_bits()) == (20, 0)


def test_a_copy_on_another_machine_believes_no_runtime_file(
    original: Path, written: Written, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a copy that even has the device and inode of the original, as on another machine it may
    root = copy(original, "closed", target)
    assert open_reader(root).state is not None
    monkeypatch.setattr(shared_state, "boot_id", lambda: "11111111-2222-3333-4444-555555555555")
    assert open_reader(root).state is None
    check(root, Expected(written=written))


@pytest.mark.guarantee("G3")
@pytest.mark.skipif(shutil.which("cp") is None, reason="copies are made by cp -a")
def test_a_copy_by_cp_of_a_store_in_use_equals_some_moment(target: Path) -> None:
    # Given a process that appends, batches too, and six copies made meanwhile, file after file
    with open_store(target, SMALL, housekeeping=False):
        pass
    copies = [target.with_name(f"copy{number}") for number in range(6)]
    with appending(target):
        for each in copies:
            copy_by_cp(target, each)
    whole = reference.read_commit_log(target)

    # Then each opens, with just a beginning of the log, everything in order, and takes messages
    for each in copies:
        with open_store(each, housekeeping=False) as store:
            found = reference.read_commit_log(each)
            assert found == whole[: len(found)]
            assert len(found) > 20
            counts = Counter((record.topic, record.queue_id) for _, record in found)
            for queue in QUEUES:
                served, stepped_over = deliveries(store, queue, "first")
                assert [number for number, _ in served] == list(range(counts[queue.topic, queue.queue_id]))
                assert stepped_over == []
        assert reference.check_store(each) == []
        assert verify.verify(each) == []


def copy_by_cp(root: Path, target: Path) -> None:
    """Copy a store as a person would; a file that was being made when ``cp`` listed it may have its name by then."""
    done = subprocess.run(["cp", "-a", root, target], stderr=subprocess.PIPE, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if not BEING_MADE.search(line)] == []


def test_opening_does_not_wait_for_those_who_have_the_original_open(original: Path, target: Path) -> None:
    root = copy(original, "closed", target)
    with open_store(original, housekeeping=False):
        begun = time.monotonic()
        done = subprocess.run(
            [*RMQ_STORE, "repair", root],
            cwd=TOP,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0
        assert time.monotonic() - begun < 100
