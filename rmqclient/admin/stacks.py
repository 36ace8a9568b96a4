"""Stacks: what the threads of a worker run, asked for from outside.

A worker keeps a file open in the state directory of this host. SIGUSR1 makes the C code of ``faulthandler`` write the
stacks of all threads there, also while a handler holds the GIL. The worker goes on.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from rmqclient.cluster.address.state_directory import state_directory
from rmqclient.store.threads.standing import has_open

_LOOK_EVERY_S = 0.02


def stack_of(pid: int, timeout_s: float) -> str:
    """Ask a worker for its stacks. Raises FileNotFoundError if it cannot be asked, TimeoutError, ProcessLookupError.

    Who has the file open is the worker: its number may name another process here, which the signal would end.
    """
    path = path_of(pid)
    begin = size = path.stat().st_size
    descriptor = os.pidfd_open(pid)
    try:
        if not has_open(pid, str(path)):
            raise ProcessLookupError(f"process {pid} here is not the worker, which runs in another PID namespace")
        signal.pidfd_send_signal(descriptor, signal.SIGUSR1)
    finally:
        os.close(descriptor)
    for _ in range(round(timeout_s / _LOOK_EVERY_S)):
        time.sleep(_LOOK_EVERY_S)
        before, size = size, path.stat().st_size
        if begin < size == before:  # the signal's work is done when the file stops growing
            return _text_from(path, begin)
    raise TimeoutError(f"nothing came within {timeout_s:.0f} s")


def path_of(pid: int) -> Path:
    """Return the file of a worker. It is there when the worker can be asked: without it, the signal would end it."""
    return state_directory() / "stacks" / str(pid)


def _text_from(path: Path, begin: int) -> str:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read().decode("utf-8", "replace")
