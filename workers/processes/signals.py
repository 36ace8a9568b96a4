"""Signals as bytes in a pipe that a loop can wait for, together with its other descriptors.

A Python signal handler runs between any two bytecodes of the main thread, so it can do almost nothing
safely. Here the handlers do nothing at all: the interpreter's C handler writes the signal's number to a pipe
(``signal.set_wakeup_fd``), and the loop reads it in its next turn.

A signal that a terminal or a service manager sends to the whole process group must not end the fork server: its
death would look like the death of all its children. So these signals are *blocked* while the fork server is
started; it and the processes it forks inherit the mask, and a worker unblocks them when its own handlers stand.
A signal that came before is delivered then, so no signal is lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

from rmqclient.store import fork
from rmqclient.store.closing import Closing

GROUP_WIDE = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Signals that arrive at every process of the group at once: Ctrl-C, a service manager's stop, a closed terminal."""


class SignalPipe(Closing):
    """The read end of a pipe with one byte for each of the wanted signals that arrived. Main thread only.

    Makes the pipe at once and changes nothing else until :meth:`install`, which may be called again, when others have
    had a chance to take the signals over. As a context manager it puts the former handlers back at the end.

    SIGINT and SIGHUP stay ignored if they were ignored when the pipe was made: ``nohup`` and the ``&`` of a shell mean
    that. Make it before the application is imported, which may ignore signals for reasons of its own.

    A forked child has none of it: a signal to the child ends it, and is not told to its parent, whose pipe it shares.
    """

    def __init__(self, *wanted: signal.Signals) -> None:
        self._wanted = frozenset(number for number in wanted if not _is_ignored_for_good(number))
        self._former: dict[signal.Signals, Any] = {}
        self._former_fd: int | None = None
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def install(self) -> None:
        """Take over the wanted signals, also from whoever has taken them over since the last call."""
        former_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        former = {number: signal.signal(number, _do_nothing) for number in self._wanted}
        if self._former_fd is None:
            self._former_fd, self._former = former_fd, former
            fork.register(self)

    def leave_to_parent(self) -> None:
        """Let the wanted signals do in a forked child what they do by default, unless others have taken them over."""
        wakeup_fd = signal.set_wakeup_fd(-1)
        if wakeup_fd != self._write_fd:
            signal.set_wakeup_fd(wakeup_fd)
        for number in self._wanted:
            if signal.getsignal(number) is _do_nothing:
                signal.signal(number, signal.SIG_DFL)

    def fileno(self) -> int:
        """Readable when a wanted signal has arrived."""
        return self._read_fd

    def read(self) -> list[signal.Signals]:
        """Return the signals since the last call, oldest first; empty if no signal came. Does not wait."""
        try:
            numbers = os.read(self._read_fd, 4096)
        except BlockingIOError:
            return []
        # The wake-up descriptor is told of every signal that has a Python handler, also of those not ours.
        return [signal.Signals(number) for number in numbers if number in self._wanted]

    def close(self) -> None:
        """Put the former handlers back and close the pipe."""
        if self._former_fd is not None:
            signal.set_wakeup_fd(self._former_fd)
        for number, handler in self._former.items():
            signal.signal(number, handler)
        os.close(self._read_fd)
        os.close(self._write_fd)


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Hold back the group-wide signals, for this thread and for every process started meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_WIDE)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_ignored_for_good(number: signal.Signals) -> bool:
    return number in (signal.SIGINT, signal.SIGHUP) and signal.getsignal(number) is signal.SIG_IGN


def unblock() -> None:
    """Let the group-wide signals arrive, in a process that was started while they were blocked."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_WIDE)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: a Python handler must exist for the interpreter to write to the wake-up descriptor."""
