"""Signals and threads: a thread that starts threads beside an application's own takes no signals.

Linux gives a signal that is sent to a process to its main thread. Until that thread has woken up, any other one
that sets its signal mask may take it instead, and a thread does that while it starts another. CPython notes the signal
then, but does not wake the main thread, so a program that waits in ``Event.wait()`` does not hear that it is to end.

The threads of a handler keep their signals: a process that a handler starts would inherit the mask.
"""

from __future__ import annotations

import signal
from typing import Final

_TAKEN: Final = {
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS),
    signal.SIGPROF,
}
"""Faults are for the thread that caused them: :mod:`faulthandler` tells of them. A profiler wants its signal in the
thread that runs."""


def take_no_signals() -> None:
    """Leave the signals for the process to its other threads; the threads that this one starts do so, too."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _TAKEN)
