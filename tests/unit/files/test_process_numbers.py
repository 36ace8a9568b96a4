"""Process ids that stand in a store: a number counts only if it names the process here that wrote it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.admin import stacks
from rmqclient.store import layout, open_store
from rmqclient.store.files.file_lock import WORKER_BYTES, LockFile
from rmqclient.store.observe.reading import Reading
from rmqclient.store.threads.standing import has_open, holds
from tests.crash.processes.pid_namespaces import need_pid_namespaces, process_of_a_namespace

BYTE = WORKER_BYTES + 3
HOLDS = """\
import sys
from pathlib import Path
from rmqclient.store.files.file_lock import LockFile
lock = LockFile(Path(sys.argv[1]))
lock.try_exclusive(int(sys.argv[2]))
print("held", flush=True)
input()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a byte of ``lock``."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "lock"), str(BYTE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_who_holds_the_byte_is_the_one_that_was_meant(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    assert holds(holder.pid, path, BYTE)
    assert not holds(holder.pid, path, BYTE + 1)


def test_another_process_that_has_the_file_open_is_not(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "lock")
    assert has_open(os.getpid(), str(lock.path))
    assert not holds(os.getpid(), str(lock.path), BYTE)
    lock.close()
    assert not has_open(os.getpid(), str(lock.path))


def test_a_process_that_counts_otherwise_is_not(tmp_path: Path) -> None:
    need_pid_namespaces()
    path = tmp_path / "lock"
    reading, writing = os.pipe()

    def life() -> None:
        lock = LockFile(path)
        lock.try_exclusive(BYTE)
        os.write(writing, b".")
        signal.pause()

    with process_of_a_namespace(life) as (_, second):
        os.read(reading, 1)
        assert not holds(second, str(path), BYTE)
        assert not has_open(second, str(path))


def test_the_memory_of_a_worker_elsewhere_is_not_that_of_a_stranger_here(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, Reading(str(tmp_path)) as onlooker:
        table = store.workers()
        slot = table.claim("worker-1")
        table.assign(slot, os.getpid())
        (seen,) = onlooker.workers()
        assert seen.resident_bytes

        # Given the number of a supervisor that means another process here
        at = layout.WORKER_TABLE_AT + slot * layout.WORKER_SLOT.size + layout.WORKER_SLOT.at["supervisor_pid"]
        store.state.words.store32(at, os.getppid())
        (seen,) = onlooker.workers()
        assert seen.resident_bytes is None
        table.release(slot)


def test_a_process_that_has_not_opened_the_file_of_a_worker_gets_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        path = stacks.path_of(stranger.pid)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"")
        with pytest.raises(ProcessLookupError):
            stacks.stack_of(stranger.pid, 1.0)
        stranger.communicate(b"\n")
    assert stranger.returncode == 0
