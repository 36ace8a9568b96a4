"""Exit codes of the command and of its workers, and the end of a process in words.

There are two sets, for two readers. A shell or a service manager reads :class:`ExitCode`, which is documented. Only a
supervisor reads the :class:`WorkerExit` of its worker. The codes of a worker come from ``sysexits.h``, far from the 1
and 2 that an interpreter or a handler's own ``sys.exit`` would use.
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
    CHECK_FAILED = 6
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "done, also when a list is empty",
    ExitCode.FAILED: "failed, or not found: no group, topic, message or key of that name; check: not healthy",
    ExitCode.USAGE: "wrong usage, or the application cannot be imported",
    ExitCode.STORE_CANNOT_BE_OPENED: "the store cannot be opened or read, or its directory was replaced",
    ExitCode.REFUSED: "a group refused the workers, because its members have another subscription",
    ExitCode.CRASH_LOOP: "every worker is in a crash loop",
    ExitCode.CHECK_FAILED: "store dump and store verify: damaged bytes, or an invariant that does not hold",
    ExitCode.INTERRUPTED: "interrupted: the second Ctrl-C of run, the first of any other command",
}
"""The only table of the exit codes; help and docs/reference/commands.md show it."""


def explained(*codes: ExitCode) -> str:
    """Return these exit codes, or all of them, as help shows them."""
    lines = (f"  {code:<3d}  {MEANINGS[code]}" for code in codes or MEANINGS)
    return "\n".join(("\b", "Exit codes:", *lines))


EXPLAINED = explained()
"""All exit codes as help shows them."""


class WorkerExit(enum.IntEnum):
    """Exit codes of a worker process."""

    STOPPED = 0
    """The worker was told to stop, and left nothing in flight."""

    FAILED = 1
    """An exception ended the worker; the supervisor starts another one."""

    THREAD_LOST = 70
    """A thread of the library ended by an error, so the worker ended; the supervisor starts another one."""

    UNFINISHED = 75
    """The worker was told to stop, but messages were still in flight at its deadline. They are delivered again."""

    NAME_TAKEN = 76
    """Another process has the worker's member name, as one does that outlives its supervisor until it has finished. The
    supervisor tries again."""

    REFUSED = 77
    """A group refused the worker, because its subscription differs from the members'. Another try with the same code
    would end the same way."""

    CANNOT_BOOT = 78
    """The worker could not load its handlers. Another try with the same code would end the same way."""

    STORE_REPLACED = 79
    """The directory of the store was removed, renamed or replaced under the worker. The supervisor finds that, too, and
    starts no other one."""


_HINTS = {
    signal.SIGKILL: "by a person, or because memory ran out",
    signal.SIGSEGV: "a crash in compiled code",
    signal.SIGBUS: "a store file was shortened or cannot be read",
    signal.SIGABRT: "the stacks of its threads are in the log above",
}

_WORDS = {
    WorkerExit.STOPPED: "stopped, nothing left in flight",
    WorkerExit.FAILED: "failed, exit code 1",
    WorkerExit.THREAD_LOST: "lost a thread of the library, whose traceback is in the log above",
    WorkerExit.UNFINISHED: "stopped at its deadline with messages in flight",
    WorkerExit.NAME_TAKEN: "another process has its member name, see the log above",
    WorkerExit.REFUSED: "refused by a group whose members have another subscription, see the log above",
    WorkerExit.CANNOT_BOOT: "its handlers cannot be loaded",
    WorkerExit.STORE_REPLACED: "the directory of its store is another one now",
}


def in_words(code: int | None) -> str:
    """Describe the end of a worker to a person.

    ``code`` is what multiprocessing reports: the exit code, or the negative number of the signal that killed the
    process. It is 255 also when the fork server is gone, and None when the process could not be started.
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
