"""What a process says by the way it ends, and those endings in words.

Two sets, because two readers: :class:`ExitCode` is what ``rmq`` says to a shell or a service manager and is
documented; :class:`WorkerExit` is what a worker says to its supervisor only. The latter are from ``sysexits.h``, far
from the 1 and 2 that an interpreter or a handler's own ``sys.exit`` would use.
"""

from __future__ import annotations

import enum
import signal


class ExitCode(enum.IntEnum):
    """Exit codes of the command ``rmq``."""

    OK = 0
    FAILED = 1
    USAGE = 2
    STORE_CANNOT_BE_OPENED = 3
    REFUSED = 4
    CRASH_LOOP = 5
    INTERRUPTED = 130


class WorkerExit(enum.IntEnum):
    """Exit codes of a worker process."""

    STOPPED = 0
    """Told to stop, and nothing was left in flight."""

    FAILED = 1
    """An exception ended it; the supervisor starts another one."""

    UNFINISHED = 75
    """Told to stop, but messages were still in flight at its deadline. They are delivered again."""

    REFUSED = 77
    """A group did not let it in, as it differs from the members: another try would end the same way."""

    CANNOT_BOOT = 78
    """The handlers cannot be loaded: another try would end the same way."""


_HINTS = {
    signal.SIGKILL: "by somebody, or because memory ran out",
    signal.SIGSEGV: "a crash in compiled code",
    signal.SIGBUS: "a store file was shortened or cannot be read",
    signal.SIGABRT: "the stacks of its threads are in the log above",
}

_WORDS = {
    WorkerExit.STOPPED: "stopped, nothing left in flight",
    WorkerExit.FAILED: "failed, exit code 1",
    WorkerExit.UNFINISHED: "stopped at its deadline with messages in flight",
    WorkerExit.REFUSED: "refused by a group whose members have another subscription, see the log above",
    WorkerExit.CANNOT_BOOT: "its handlers cannot be loaded",
}


def in_words(code: int | None) -> str:
    """How a worker ended, for a person.

    ``code`` is what multiprocessing reports: the exit code, the negative number of the signal that killed the process,
    255 also when its fork server is gone, and None for a process that could not be started at all.
    """
    if code is None:
        return "could not be started"
    if code < 0:
        return _killed_by(-code)
    if code == 255:
        return "exit code 255, or its fork server was killed"
    try:
        return _WORDS[WorkerExit(code)]
    except ValueError:
        return f"exit code {code}"


def _killed_by(number: int) -> str:
    try:
        name = signal.Signals(number)
    except ValueError:  # a real-time signal has a number and no name
        return f"killed by signal {number}"
    hint = _HINTS.get(name)
    return f"killed by {name.name}" + (f": {hint}" if hint else "")
