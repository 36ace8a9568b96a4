"""One worker process as its supervisor sees it.

Workers are forked by a **fork server**: a small process that was started fresh, has no threads, and has already
imported what a worker needs. A fork of the supervisor itself would copy its threads' locks in an arbitrary state.
The start method is chosen here and nowhere else, so that another version of Python cannot change it.

What follows from the fork server:

- A worker is a grandchild. The supervisor learns its end from its *sentinel*, a pipe to which the fork server writes
  the exit code. The supervisor never calls ``waitpid`` for a worker, or for any process that it did not start.
- If the fork server is killed, every sentinel reports an end although the workers live on. Therefore the supervisor
  kills a worker whose end was reported through its pidfd, which cannot hit another process that has the same number.
- ``PR_SET_PDEATHSIG`` would report the death of the fork server. A worker watches the sentinel of its *parent process*
  instead: a pipe whose write end only the supervisor holds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import types
from collections.abc import Iterator

import multiprocess
import multiprocess.forkserver
import multiprocess.resource_tracker

from rmqclient.consuming.workers import WORKER
from rmqclient.workers.processes import signals, worker

_PROCESSES = multiprocess.get_context("forkserver")


def start_fork_server() -> None:
    """Start the process that forks the workers. Call it before anything in this process starts a thread.

    Returns without waiting for its imports. Starting it again is free.
    """
    _PROCESSES.set_forkserver_preload(["rmqclient.workers.processes.worker"])
    # Starting the resource tracker ends with unblocking signals, so it must not happen under the mask.
    multiprocess.resource_tracker.ensure_running()
    with signals.blocked():
        multiprocess.forkserver.ensure_running()


def helpers() -> frozenset[int]:
    """Return the processes that this one started to start workers, and whose ends it takes by itself."""
    fork_server = multiprocess.forkserver._forkserver._forkserver_pid  # noqa: SLF001 - nothing else tells
    tracker = multiprocess.resource_tracker._resource_tracker._pid  # noqa: SLF001
    return frozenset(pid for pid in (fork_server, tracker) if pid is not None)


class Child:
    """A started worker process. Raises OSError or EOFError when it cannot be started."""

    def __init__(self, boot: worker.Boot) -> None:
        self.slot = boot.slot
        self._process = _PROCESSES.Process(target=worker.main, args=(boot,), name=f"{WORKER}{boot.slot}")
        with signals.blocked(), _without_main_module():
            self._process.start()
        self.pid: int = self._process.pid
        self._pidfd = _open_pidfd(self.pid)

    @property
    def sentinel(self) -> int:
        """A descriptor that is readable when the process has ended."""
        return int(self._process.sentinel)

    def exit_code(self) -> int | None:
        """Return the exit code, or the negative number of the killing signal; None while it runs. Does not wait."""
        code = self._process.exitcode
        if code is None:
            return None
        self.send(signal.SIGKILL)
        return int(code)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process is gone."""
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def close(self) -> None:
        """Free the descriptors of a process that has ended."""
        self._process.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:  # so quick to end that the fork server has already reaped it
        return None


@contextlib.contextmanager
def _without_main_module() -> Iterator[None]:
    """Start a child that does not run this process's ``__main__`` again.

    multiprocessing would import the script ``rmq``, and with it the whole command line, into every worker.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
