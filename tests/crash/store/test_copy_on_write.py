"""File systems that share blocks between files: a full disk is StoreFull there, too, and never a signal.

On small file systems on a loop device. Mounting needs root, and mkfs.xfs or mkfs.btrfs.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.errors import StoreFull
from rmqclient.store.files.own_blocks import RESERVE, shares_blocks
from tests.client.conftest import wait_for
from tests.support.host.shared_blocks import CASES, Case
from tests.support.host.small_disks import CannotMount, Filler, small_disk
from tests.support.oracle import reference
from tests.support.oracle.views import stored_bodies
from tests.support.stores import SMALL, SPAN, TOPIC, appender_of, body_of, grant_of


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def disk(case: Case, tmp_path: Path) -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            yield stack.enter_context(small_disk(case.kind, tmp_path))
        except CannotMount as error:
            pytest.skip(str(error))


WORK = """
import sys
from pathlib import Path
from tests.crash.store.test_copy_on_write import work
work(Path(sys.argv[1]))
"""


def work(root: Path) -> None:
    """Send and handle as orders come: ``f`` until the store is full, ``a`` another one, ``h`` all that is there."""
    with open_store(root, SMALL, housekeeping=False) as store:
        sent = 0
        print("ready", flush=True)
        for order in sys.stdin:
            if order == "h\n":
                grant = grant_of(store)
                offsets = [message.queue_offset for message in grant.take(SPAN, SPAN)]
                assert grant.acknowledge_offsets(offsets)
                print(len(offsets), flush=True)
                continue
            sent += send(store, sent, 1 << 20 if order == "f\n" else 1)
            print(sent, flush=True)


def send(store: MessageStore, first: int, most: int) -> int:
    """Send until so many are sent, or the store is full; return how many were."""
    for number in range(first, first + most):
        try:
            appender_of(store).append(Message(TOPIC, body_of(number, 2_000)))
        except StoreFull:
            return number - first
    return most


class Worker:
    """A process that has the store open and does what it is told, so that a signal ends it and not the test."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-c", WORK, str(root)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        self._process.__enter__()
        assert self._answer() == "ready"
        return self

    def __exit__(self, *error: object) -> None:
        self._process.__exit__(None, None, None)  # closes the pipes, at which the worker ends
        assert self._process.returncode == 0 or error[0] is not None

    def ask(self, order: str) -> int:
        self.tell(order)
        return self.answer()

    def tell(self, order: str) -> None:
        assert self._process.stdin is not None
        print(order, file=self._process.stdin, flush=True)

    def answer(self) -> int:
        return int(self._answer())

    def has_answered(self, within_s: float) -> bool:
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], within_s)[0])

    def _answer(self) -> str:
        assert self._process.stdout is not None
        assert self.has_answered(within_s=60), "the worker still waits"
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            pytest.fail(f"the worker ended: {signal.Signals(-status).name if status < 0 else status}")
        return line.strip()


@pytest.mark.crash
@pytest.mark.sweep
@pytest.mark.guarantee("G92")
def test_a_full_disk_is_no_signal_where_files_share_blocks(case: Case, disk: Path) -> None:
    # Given a store in use, whose files share blocks by now, and the look of the housekeeper
    root = disk / "store"
    with open_store(root, SMALL) as store, Worker(root) as worker:
        assert [worker.ask("a") for _ in range(20)][-1] == 20
        os.sync()
        case.share(disk)
        store.disk.look()
        os.sync()  # a flush of one file is nothing in this folder of tests
        assert not shares_blocks(root / "shared")
        assert not shares_blocks(store.log_files.path(store.log_files.bases()[-1]))

        # When the disk runs full to its last block
        filler = Filler(disk)
        filler.fill()

        # Then the sender is told, but for what the file system finds room for after all, and the consumer goes on
        worker.ask("f")
        answers = [worker.ask("a") for _ in range(100)]
        sent = answers[-1]
        assert len({*answers}) < len(answers)
        assert worker.ask("h") == sent

        # And when there is room the same sender goes on
        filler.free()
        os.sync()
        wait_for(lambda: worker.ask("a") > sent, "sends go on")

    # And all that was acknowledged is there
    assert len(stored_bodies(root)) == sent + 1
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.sweep
@pytest.mark.guarantee("G92")
def test_a_disk_that_runs_full_at_once_after_a_clone_is_no_signal_either(case: Case, disk: Path) -> None:
    # Given a store in use whose files come to share their blocks, and nobody who looks
    root = disk / "store"
    with Worker(root) as worker:
        assert [worker.ask("a") for _ in range(20)][-1] == 20
        os.sync()
        case.share(disk)

        # When the disk runs full before anything is stored again
        filler = Filler(disk)
        filler.fill()

        # Then the sender is told, or waits
        worker.tell("a")
        worker.has_answered(within_s=1)

        # And when there is room it goes on, and so does the consumer
        filler.free()
        os.sync()
        sent = worker.answer()
        wait_for(lambda: worker.ask("a") > sent, "sends go on")
        sent = worker.ask("a")
        assert worker.ask("h") == sent

    # And all that was acknowledged is there, once
    assert len(stored_bodies(root)) == len({*stored_bodies(root)}) == sent
    assert reference.check_store(root) == []

    # And the next opening holds room for such a case again
    with open_store(root, housekeeping=False):
        assert (root / RESERVE).stat().st_size


@pytest.mark.crash
@pytest.mark.sweep
@pytest.mark.guarantee("G92")
@pytest.mark.parametrize("case", CASES[:1], indirect=True, ids=["xfs"])
def test_a_store_into_a_file_that_was_cut_is_the_signal_that_it_was(case: Case, disk: Path) -> None:
    cut = "import os, sys; from pathlib import Path; from rmqclient.store.files.mapped_file import map_file; "
    cut += "path = Path(sys.argv[1]); path.write_bytes(bytes(8192)); mapping = map_file(path, 8192); "
    cut += "os.truncate(path, 0); memoryview(mapping)[0] = 1"
    ended = subprocess.run([sys.executable, "-c", cut, str(disk / "file")], check=False)
    assert case.kind == "xfs"
    assert ended.returncode == -signal.SIGBUS


@pytest.mark.crash
@pytest.mark.sweep
@pytest.mark.guarantee("G92")
@pytest.mark.parametrize("case", CASES[-1:], indirect=True, ids=["btrfs"])
def test_a_store_that_finds_no_block_beside_free_ones_waits_for_longer_than_a_moment(case: Case, disk: Path) -> None:
    # Given a mapped file that may have no new block, on a disk that has free ones
    path = disk / "store" / "file"
    btrfs("subvolume", "create", disk / "store")
    btrfs("quota", "enable", disk)
    path.write_bytes(bytes(1 << 20))
    os.sync()
    case.share(disk)
    btrfs("qgroup", "limit", "1", disk / "store")

    # When a process stores there, then it waits
    change = "import sys; from pathlib import Path; from rmqclient.store.files.mapped_file import map_file; "
    change += "mapping = map_file(Path(sys.argv[1]), 1 << 20); print('maps', flush=True); memoryview(mapping)[0] = 1"
    with subprocess.Popen([sys.executable, "-c", change, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"maps\n"
        with pytest.raises(subprocess.TimeoutExpired):  # however slow the machine is: after half a minute it gives up
            process.wait(4)

        # And it goes on once it may have one
        btrfs("quota", "disable", disk)
        assert process.wait(60) == 0


def btrfs(*arguments: str | Path) -> None:
    subprocess.run(["btrfs", *arguments], check=True, capture_output=True)


@pytest.mark.crash
@pytest.mark.sweep
@pytest.mark.guarantee("G92")
@pytest.mark.parametrize("case", CASES[:1], indirect=True, ids=["xfs"])
def test_a_store_that_was_cloned_while_it_was_closed_has_blocks_of_its_own_when_it_is_open(
    case: Case, disk: Path
) -> None:
    root = disk / "store"
    with open_store(root, SMALL, housekeeping=False) as store:
        assert send(store, 0, 10) == 10
        log = store.log_files.path(0)
    os.sync()
    case.share(disk)
    assert shares_blocks(log)
    with open_store(root, housekeeping=False):
        os.sync()
        assert not shares_blocks(log)
