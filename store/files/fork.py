"""Fork: the one hook that runs in a forked child, before any of the child's own code.

A forked child has copies of its parent's handles, but only one thread, the forking one. A handle that must not work in
the child registers here. In the child it leaves itself to the parent: it closes its descriptors, or refuses every later
call.
"""

from __future__ import annotations

import os
import weakref
from contextlib import ExitStack
from typing import Protocol

from rmqclient.store.native_threads import threading


class LeftToParent(Protocol):
    """A handle that only the process that made it may use."""

    def leave_to_parent(self) -> None:
        """Release what the parent still uses. Called in a forked child, where no other thread runs."""


held_off = threading.RLock()
"""While a thread holds this lock, a fork in another thread waits. Hold it until what was opened is registered.
It is reentrant, because a signal handler may fork in the thread that holds it."""

_handles: weakref.WeakValueDictionary[int, LeftToParent] = weakref.WeakValueDictionary()


def register(handle: LeftToParent) -> None:
    """Call ``handle.leave_to_parent()`` in every forked child, as long as the handle is referred to elsewhere.

    The handle registered last is called first. If a call raises, the others are still called.
    """
    with held_off:
        _handles[id(handle)] = handle


def _in_child() -> None:
    with ExitStack() as stack:
        stack.callback(held_off.release)
        for handle in list(_handles.values()):
            stack.callback(handle.leave_to_parent)


os.register_at_fork(before=held_off.acquire, after_in_parent=held_off.release, after_in_child=_in_child)
