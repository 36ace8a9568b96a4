"""Processes in PID namespaces of their own, as in containers: each has the number there that every other one has."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NUMBER = 1_000
"""Of a process beside process 1 of its namespace."""

_CLONE_NEWPID = 0x2000_0000
_LAST_NUMBER = Path("/proc/sys/kernel/ns_last_pid")
_libc = ctypes.CDLL(None, use_errno=True)


def need_pid_namespaces() -> None:
    """Skip a test where this process may not make PID namespaces."""
    try:
        pid = fork_into_namespace()
    except PermissionError as error:
        pytest.skip(f"only root may make PID namespaces: {error.strerror}")
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    if not _LAST_NUMBER.exists():
        pytest.skip("the kernel has no checkpoints, with which a process gets its number")


def fork_into_namespace() -> int:
    """Do as ``os.fork``; the child is process 1 of a namespace of its own. Raises PermissionError."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.unshare(_CLONE_NEWPID))
        pid = os.fork()
        if pid:
            _check(_libc.setns(own, _CLONE_NEWPID))
        return pid
    finally:
        os.close(own)


@contextmanager
def process_of_a_namespace(life: Callable[[], object]) -> Iterator[tuple[int, int]]:
    """Run ``life`` as process ``NUMBER`` of a new namespace; give process 1, whose kill ends both, and that one.

    Unlike process 1 it can be stopped and killed from inside.
    """
    started, say_started = os.pipe()
    first = fork_into_namespace()
    if first == 0:
        # The lower ones may be threads by now: some libraries start theirs anew in each forked process
        _LAST_NUMBER.write_text(str(NUMBER - 1), encoding="ascii")
        second = os.fork()
        if second == 0:
            try:
                life()
            finally:
                os._exit(1)
        os.write(say_started, b".")
        os.waitpid(second, 0)
        os._exit(0)
    try:
        os.read(started, 1)
        os.close(started)
        os.close(say_started)
        yield first, int(Path(f"/proc/{first}/task/{first}/children").read_text(encoding="ascii"))
    finally:
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
