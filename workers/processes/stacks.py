"""Stacks: what the threads of a worker run, asked for from outside.

A worker keeps a file open in the state directory of this host. SIGUSR1 makes the C code of ``faulthandler`` write the
stacks of all threads there, also while a handler holds the GIL. The worker goes on.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import time
from pathlib import Path

from rmqclient.cluster.address.state_directory import state_directory

_LOOK_EVERY_S = 0.02


def tell_stacks() -> None:
    """Let this process write its stacks at SIGUSR1. Without a state directory it does not, and goes on."""
    path = _path(os.getpid())
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = path.open("wb")
    except OSError:
        return
    atexit.register(path.unlink, missing_ok=True)
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)


def stack_of(pid: int, timeout_s: float) -> str:
    """Ask a worker for its stacks. Raises FileNotFoundError if it cannot be asked, TimeoutError, ProcessLookupError."""
    path = _path(pid)
    begin = path.stat().st_size
    os.kill(pid, signal.SIGUSR1)
    deadline, size = time.monotonic() + timeout_s, begin
    while size == begin or size != path.stat().st_size:  # the signal's work is done when the file stops growing
        size = path.stat().st_size
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came within {timeout_s:.0f} s")
        time.sleep(_LOOK_EVERY_S)
    with path.open("rb") as file:
        file.seek(begin)
        return file.read().decode("utf-8", "replace")


def _path(pid: int) -> Path:
    return state_directory() / "stacks" / str(pid)
