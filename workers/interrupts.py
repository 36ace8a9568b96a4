"""Interrupts: what Ctrl-C does to the command ``rmq``, from its first line to its last.

=======================  =======================================================================================
while                    Ctrl-C
=======================  =======================================================================================
it starts, or ends       ends it as a signal ends any program: nothing is held, and nobody waits for a trace
a command is at work     is a KeyboardInterrupt, once, so that what is open is closed; the exit code is 130
after the first one      ends it as a signal
=======================  =======================================================================================

Python itself needs some ms before the first line of the command, and shows a trace of its own if Ctrl-C comes then.
A command that waits for signals itself, as ``rmq run`` does, takes them over meanwhile. What was ignored when
the command began stays ignored: ``nohup`` and the ``&`` of a shell mean that.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def end_quietly() -> None:
    """Let Ctrl-C end this process, which is that of a command, without a trace."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.unraisablehook = _end_if_interrupted


@contextmanager
def raised() -> Iterator[None]:
    """Let Ctrl-C be raised meanwhile, where :func:`end_quietly` was called; an application's process stays as it is."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGINT, _raise_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def is_behind(error: BaseException | None) -> bool:
    """Tell whether an error is what others made of an interrupt, as Python does while it makes a class."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _end_if_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    """End by the signal when the interrupt was raised where nobody can catch it, such as in a ``__del__``."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    sys.__unraisablehook__(unraisable)


def _raise_once(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt
