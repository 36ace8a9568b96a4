"""Parent: ends the server with the process that started it.

A pidfd of the parent becomes readable when the process ends. ``PR_SET_PDEATHSIG`` would end the server with the
*thread* that started it, which in a test runner or a pool ends long before the process.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable

from rmqclient.store.threads.guarded import GuardedThread


def when_parent_ends(callback: Callable[[], None]) -> None:
    """Call back on the running loop when the parent process ends, at once if it has ended."""
    loop = asyncio.get_running_loop()
    parent = os.getppid()
    descriptor = os.pidfd_open(parent)  # stays open as long as this process lives

    def ended() -> None:
        loop.remove_reader(descriptor)
        callback()

    loop.add_reader(descriptor, ended)
    if os.getppid() != parent:  # it ended before it was watched, and the descriptor is of another process
        loop.call_soon(callback)


def end_of_parent() -> threading.Event:
    """Return an event that is set when the parent process ends, for use without an event loop."""
    ended, parent = threading.Event(), os.getppid()
    descriptor = os.pidfd_open(parent)  # stays open as long as this process lives

    def wait() -> None:
        select.select([descriptor], [], [])
        ended.set()

    if os.getppid() != parent:
        ended.set()
    GuardedThread(target=wait, name="rmq-parent").start()
    return ended
