"""Processes in PID namespaces of their own, as in containers: each is process 1 or 2 there, as every other one is."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

_CLONE_NEWPID = 0x2000_0000
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


def start_as_process_2(life: Callable[[], object]) -> tuple[int, int]:
    """Start ``life`` as process 2 of a new namespace; return process 1, whose kill ends both, and process 2.

    Unlike process 1 it can be stopped and killed from inside.
    """
    started, say_started = os.pipe()
    first = fork_into_namespace()
    if first == 0:
        second = os.fork()
        if second == 0:
            try:
                life()
            finally:
                os._exit(1)
        os.write(say_started, b".")
        os.waitpid(second, 0)
        os._exit(0)
    os.read(started, 1)
    os.close(started)
    os.close(say_started)
    return first, int(Path(f"/proc/{first}/task/{first}/children").read_text(encoding="ascii"))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
