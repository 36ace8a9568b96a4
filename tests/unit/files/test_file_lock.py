"""Locks on single bytes of the lock file, between processes that really run and really die."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rmqclient.store.errors import StoreBusy, StoreClosed, StoreUnusable
from rmqclient.store.files import file_lock
from rmqclient.store.files.file_lock import (
    BROKER_BYTE,
    GATE_BYTE,
    HOUSEKEEPER_BYTE,
    MEMBER_BYTES,
    TOPIC_BYTE,
    WORKER_BYTES,
    LockFile,
    byte_name,
)

REPOSITORY = Path(file_lock.__file__).parents[3]


class OtherProcess:
    """This file run as a program: it does one command per line and answers each with a line."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )

    def ask(self, *command: object) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, command)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        assert self.process.wait(30) == -signal.SIGKILL

    def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        self.process.communicate()


def serve(path: Path) -> None:
    """What the other process does."""
    handle = LockFile(path)
    descriptor = os.open(path, os.O_RDWR)
    for line in sys.stdin:
        command, *arguments = line.split()
        byte = int(arguments[0]) if arguments else 0
        answer: object = None
        if command == "as_broker":
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte, os.SEEK_SET)
        elif command == "fork":
            answer = fork_a_child_that_stays()
        else:
            answer = getattr(handle, command)(byte)
        print(answer, flush=True)


def fork_a_child_that_stays() -> int:
    child = os.fork()
    if child == 0:
        signal.pause()
    return child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def lock(path: Path) -> Iterator[LockFile]:
    with closing(LockFile(path)) as handle:
        yield handle


@pytest.fixture
def other(path: Path) -> Iterator[OtherProcess]:
    with closing(OtherProcess(path)) as process:
        yield process


def in_forked_child(action: Callable[[], int]) -> int:
    """Return what ``action`` returned in a child made by fork, 255 when it raised."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(action())
        finally:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# --- the file -------------------------------------------------------------------------------------


def test_a_handle_knows_what_it_holds_which_a_probe_does_not_tell(tmp_path: Path) -> None:
    with closing(LockFile(tmp_path / "lock")) as lock:
        assert not lock.holds(MEMBER_BYTES)
        assert lock.try_exclusive(MEMBER_BYTES)
        assert lock.holds(MEMBER_BYTES)
        assert lock.holder(MEMBER_BYTES) is None
        assert not lock.holds(MEMBER_BYTES + 1)
        lock.unlock(MEMBER_BYTES)
        assert not lock.holds(MEMBER_BYTES)


def test_a_new_file_is_what_rocketmq_writes_and_private(path: Path) -> None:
    previous = os.umask(0)
    try:
        LockFile(path).close()
    finally:
        os.umask(previous)
    assert path.read_bytes() == b"lock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_existing_file_is_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"somebody's")
    LockFile(path).close()
    assert path.read_bytes() == b"somebody's"


def test_a_file_whose_maker_died_before_writing_is_filled(path: Path) -> None:
    path.touch()
    LockFile(path).close()
    assert path.read_bytes() == b"lock"


@pytest.mark.parametrize("kind", ["symbolic link", "directory", "pipe", "nothing above it"])
def test_what_is_not_a_regular_file_is_refused(tmp_path: Path, path: Path, kind: str) -> None:
    if kind == "symbolic link":
        (tmp_path / "elsewhere").touch()
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path = tmp_path / "missing" / "lock"
    with pytest.raises(StoreUnusable, match="lock"):
        LockFile(path)


def test_the_descriptor_is_not_inherited_by_programs(lock: LockFile) -> None:
    assert not os.get_inheritable(lock._file.fileno())


def test_every_byte_has_a_name_for_messages() -> None:
    assert byte_name(GATE_BYTE) == "the gate for opening and closing"
    assert byte_name(MEMBER_BYTES + 5) == "member slot 5"
    assert byte_name(WORKER_BYTES) == "worker slot 0"
    assert byte_name(99) == "byte 99"


# --- two processes --------------------------------------------------------------------------------


def test_an_exclusive_byte_keeps_another_process_out_and_other_bytes_do_not(
    lock: LockFile, other: OtherProcess
) -> None:
    assert other.ask("try_exclusive", GATE_BYTE) == "True"
    assert not lock.try_exclusive(GATE_BYTE)
    assert not lock.try_shared(GATE_BYTE)
    assert lock.try_exclusive(HOUSEKEEPER_BYTE)
    other.ask("unlock", GATE_BYTE)
    assert lock.try_exclusive(GATE_BYTE)


def test_a_shared_byte_is_shared_and_cannot_be_made_exclusive_by_one_of_two(
    lock: LockFile, other: OtherProcess
) -> None:
    assert lock.try_shared(BROKER_BYTE)
    assert other.ask("try_shared", BROKER_BYTE) == "True"
    # When one of them asks for more, it is refused and keeps what it had
    assert not lock.try_exclusive(BROKER_BYTE)
    assert other.ask("try_exclusive", BROKER_BYTE) == "False"
    # And the last one gets it
    other.ask("unlock", BROKER_BYTE)
    assert lock.try_exclusive(BROKER_BYTE)
    # And can let the others in again
    assert lock.try_shared(BROKER_BYTE)
    assert other.ask("try_shared", BROKER_BYTE) == "True"


def test_the_kernel_releases_what_a_killed_process_held(lock: LockFile, other: OtherProcess) -> None:
    for byte in (HOUSEKEEPER_BYTE, MEMBER_BYTES + 1_023, WORKER_BYTES + 255):
        assert other.ask("try_exclusive", byte) == "True"
        assert not lock.try_exclusive(byte)
    other.kill()
    for byte in (HOUSEKEEPER_BYTE, MEMBER_BYTES + 1_023, WORKER_BYTES + 255):
        assert lock.holder(byte) is None
        assert lock.try_exclusive(byte)


def test_opening_and_closing_the_file_elsewhere_in_the_process_keeps_the_lock(
    path: Path, lock: LockFile, other: OtherProcess
) -> None:
    assert lock.try_exclusive(GATE_BYTE)
    with path.open("rb+") as file:
        file.read()
    LockFile(path).close()
    assert other.ask("try_exclusive", GATE_BYTE) == "False"


def test_two_handles_of_one_process_exclude_each_other(path: Path, lock: LockFile) -> None:
    with closing(LockFile(path)) as second:
        assert lock.try_exclusive(GATE_BYTE)
        assert not second.try_exclusive(GATE_BYTE)
        assert second.holder(GATE_BYTE) == 0


def test_closing_releases_everything_and_the_handle_says_so(lock: LockFile, other: OtherProcess) -> None:
    assert lock.try_exclusive(GATE_BYTE)
    lock.close()
    lock.close()
    assert other.ask("try_exclusive", GATE_BYTE) == "True"
    for use in (lock.try_exclusive, lock.try_shared, lock.unlock, lock.holder):
        with pytest.raises(StoreClosed, match="was closed"):
            use(GATE_BYTE)


def test_a_dropped_handle_is_closed_with_a_warning(path: Path, other: OtherProcess) -> None:
    handle: LockFile | None = LockFile(path)
    assert handle is not None
    assert handle.try_exclusive(GATE_BYTE)
    with pytest.warns(ResourceWarning):
        handle = None
    assert other.ask("try_exclusive", GATE_BYTE) == "True"


# --- a RocketMQ broker ----------------------------------------------------------------------------


def test_a_brokers_lock_keeps_us_out_and_its_pid_is_known(lock: LockFile, other: OtherProcess) -> None:
    other.ask("as_broker", BROKER_BYTE)
    assert not lock.try_shared(BROKER_BYTE)
    assert not lock.try_exclusive(BROKER_BYTE)
    assert lock.holder(BROKER_BYTE) == other.process.pid


def test_a_broker_is_kept_out_while_any_process_has_the_store_open(path: Path, lock: LockFile) -> None:
    assert lock.try_shared(BROKER_BYTE)
    descriptor = os.open(path, os.O_RDWR)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, BROKER_BYTE, os.SEEK_SET)
    finally:
        os.close(descriptor)


def test_the_holder_is_nobody_for_a_free_byte_and_for_ones_own(lock: LockFile) -> None:
    assert lock.holder(TOPIC_BYTE) is None
    lock.try_exclusive(TOPIC_BYTE)
    assert lock.holder(TOPIC_BYTE) is None


def test_an_open_file_description_lock_has_a_holder_without_a_pid(lock: LockFile, other: OtherProcess) -> None:
    other.ask("try_shared", BROKER_BYTE)
    assert lock.holder(BROKER_BYTE) == 0


# --- fork -----------------------------------------------------------------------------------------


def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(lock: LockFile, other: OtherProcess) -> None:
    # Given a process that holds a byte and has a child made by fork
    assert other.ask("try_exclusive", MEMBER_BYTES) == "True"
    grandchild = int(other.ask("fork"))
    try:
        assert not lock.try_exclusive(MEMBER_BYTES)
        # When it is killed and the child lives on
        other.kill()
        os.kill(grandchild, 0)
        # Then the byte is free
        lock.wait_exclusive(MEMBER_BYTES, timeout_s=10)
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_forked_child_cannot_use_the_handle_nor_release_the_lock(lock: LockFile, other: OtherProcess) -> None:
    assert lock.try_exclusive(GATE_BYTE)

    def use() -> int:
        refused = 0
        for action in (lock.unlock, lock.try_exclusive, lock.try_shared, lock.holder):
            with pytest.raises(StoreClosed, match="which this one was forked from"):
                action(GATE_BYTE)
            refused += 1
        lock.close()
        return refused

    assert in_forked_child(use) == 4
    assert other.ask("try_exclusive", GATE_BYTE) == "False"


def test_a_forked_child_can_open_the_file_again(path: Path, lock: LockFile) -> None:
    assert lock.try_exclusive(GATE_BYTE)

    def reopen() -> int:
        with closing(LockFile(path)) as mine:
            return 10 * mine.try_exclusive(TOPIC_BYTE) + mine.try_exclusive(GATE_BYTE)

    assert in_forked_child(reopen) == 10


def test_a_fork_waits_for_an_opening_under_way_in_another_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a thread that has the descriptor and not yet the handle
    opened, go_on = threading.Event(), threading.Event()
    real_open = file_lock._open
    handles: list[LockFile] = []

    def slow_open(path: Path) -> object:
        file = real_open(path)
        opened.set()
        go_on.wait(30)
        return file

    monkeypatch.setattr(file_lock, "_open", slow_open)
    opening = threading.Thread(target=lambda: handles.append(LockFile(path)))
    opening.start()
    opened.wait(30)
    before = set(Path("/proc/self/fd").iterdir())
    # When this thread forks
    threading.Timer(0.05, go_on.set).start()
    left_open = in_forked_child(lambda: sum(_is_lock_file(descriptor, path) for descriptor in before))
    opening.join()
    # Then the child has no copy of the descriptor
    assert left_open == 0
    handles[0].close()


def _is_lock_file(descriptor: Path, path: Path) -> bool:
    try:
        return descriptor.readlink() == path
    except FileNotFoundError:
        return False


# --- waiting --------------------------------------------------------------------------------------


def test_waiting_gets_the_byte_when_its_holder_dies(lock: LockFile, other: OtherProcess) -> None:
    assert other.ask("try_exclusive", HOUSEKEEPER_BYTE) == "True"
    waiting = threading.Thread(target=lock.wait_exclusive, args=(HOUSEKEEPER_BYTE, 30))
    waiting.start()
    other.kill()
    waiting.join(30)
    assert not waiting.is_alive()
    with closing(LockFile(lock.path)) as second:
        assert not second.try_exclusive(HOUSEKEEPER_BYTE)


def test_waiting_is_bounded_and_says_what_for(lock: LockFile, other: OtherProcess) -> None:
    other.ask("as_broker", TOPIC_BYTE)
    with pytest.raises(StoreBusy, match=rf"topics and config files .* by process {other.process.pid}"):
        lock.wait_exclusive(TOPIC_BYTE, timeout_s=0.05)


def test_waiting_sleeps_with_growing_pauses_and_does_not_spin(
    lock: LockFile, other: OtherProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a clock that only sleeping moves
    clock = [100.0]
    pauses: list[float] = []

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        clock[0] += pause_s

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(file_lock, "sleep", sleep)
    other.ask("try_exclusive", GATE_BYTE)
    with pytest.raises(StoreBusy, match=rf"by process {other.process.pid} \("):
        lock.wait_exclusive(GATE_BYTE, timeout_s=1)
    assert sum(pauses) == pytest.approx(1)
    assert pauses[:-1] == sorted(pauses[:-1])
    assert len(pauses) < 30


def test_a_wait_of_no_time_tries_once(lock: LockFile, other: OtherProcess) -> None:
    lock.wait_exclusive(GATE_BYTE, timeout_s=0)
    lock.unlock(GATE_BYTE)
    other.ask("try_exclusive", GATE_BYTE)
    with pytest.raises(StoreBusy):
        lock.wait_exclusive(GATE_BYTE, timeout_s=0)


def test_holding_a_byte_ends_with_the_block_even_when_it_raises(lock: LockFile, other: OtherProcess) -> None:
    with lock.held(GATE_BYTE):
        assert other.ask("try_exclusive", GATE_BYTE) == "False"
    with pytest.raises(KeyError), lock.held(GATE_BYTE):
        raise KeyError
    assert other.ask("try_exclusive", GATE_BYTE) == "True"
    with pytest.raises(StoreBusy), lock.held(GATE_BYTE, timeout_s=0):
        pass


def test_holding_a_byte_keeps_out_the_threads_that_share_the_handle(lock: LockFile) -> None:
    inside, at_most = 0, 0

    def enter() -> None:
        nonlocal inside, at_most
        for _ in range(200):
            with lock.held(GATE_BYTE, timeout_s=30):
                inside += 1
                at_most = max(at_most, inside)
                os.sched_yield()
                inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert at_most == 1
    with lock.held(GATE_BYTE), pytest.raises(StoreBusy, match="thread of this process"), lock.held(GATE_BYTE, 0.01):
        pass


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
