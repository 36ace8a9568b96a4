"""Guarded: the threads of the library, and what becomes of an error that leaves one.

A thread of the library ends when its work is over. Whatever else leaves its function leaves work behind that nobody
does: a lease that nobody renews, a batch that nobody handles. That may be a fault of ours, or an exception that other
code raised in the thread too late, as time limits by ``PyThreadState_SetAsyncExc`` do. It is printed on standard error,
and told to everybody who has asked by :func:`tell`: a worker process ends and is replaced, and a consumer inside of
a program closes and raises :class:`rmqclient.errors.ThreadLost` there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from rmqclient.store.errors import ThreadLost, no_thread
from rmqclient.store.native_threads import threading


class Loss(NamedTuple):
    """A thread that ended before its work was over."""

    thread: str
    """Its name."""
    error: BaseException
    """What left its function."""

    def as_error(self) -> ThreadLost:
        """Return what whoever answers for the process gets; its cause is what left the thread."""
        error = ThreadLost(f"thread {self.thread} ended by {type(self.error).__name__}, and with it what it did")
        error.__cause__ = self.error
        return error


Listener: TypeAlias = Callable[[Loss], object]

_listeners: list[Listener] = []
_changing = threading.Lock()


class GuardedThread(threading.Thread):
    """A thread of the library; like any daemon thread, but an error that leaves it is a :class:`Loss`."""

    def __init__(self, *, target: Callable[..., object], name: str, args: tuple[object, ...] = ()) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)

    def start(self) -> None:
        """Start it. Raises LimitReached when the process or the host can have no more threads."""
        try:
            super().start()
        except RuntimeError as error:
            raise no_thread(self.name, error) from error

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended; returns at once if it was never started."""
        if self.ident is not None:
            super().join(timeout)

    def run(self) -> None:
        """Run the target."""
        try:
            super().run()
        except BaseException as error:  # noqa: BLE001 - SystemExit would end the thread without a word
            lose(self.name, error)


def lose(thread: str, error: BaseException) -> None:
    """Tell that the work of a thread has ended by an error. Never raises."""
    with contextlib.suppress(BaseException):
        sys.stderr.write(f"rmqclient: thread {thread} ended, and with it what it did:\n")
        traceback.print_exception(error)
    with _changing:
        listeners = list(_listeners)
    for listener in listeners:
        with contextlib.suppress(BaseException):
            listener(Loss(thread, error))


def tell(listener: Listener) -> None:
    """Call the listener at each loss in this process, in the thread that ends, until :func:`tell_no_more`."""
    with _changing:
        _listeners.append(listener)


def tell_no_more(listener: Listener) -> None:
    """Take back :func:`tell`; nothing happens if that was done."""
    with _changing, contextlib.suppress(ValueError):
        _listeners.remove(listener)


def is_for_the_program(error: BaseException) -> bool:
    """Tell whether an exception is how the program itself ends, as Ctrl-C: such a one comes in the main thread."""
    return not isinstance(error, Exception) and threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def ending_at_a_loss() -> Iterator[None]:
    """Ask this process to end, by SIGTERM, when it loses a thread; raises ThreadLost behind the block then."""
    lost: list[Loss] = []

    def end(loss: Loss) -> None:
        lost.append(loss)
        os.kill(os.getpid(), signal.SIGTERM)

    tell(end)
    try:
        yield
    finally:
        tell_no_more(end)
    if lost:
        raise lost[0].as_error()
