"""Threads that a block of a test began, and those that it leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_thread_left(*names: str) -> Iterator[None]:
    """Raise AssertionError when a block leaves a thread behind whose name begins with one of ``names``.

    Threads that are there before the block do not count: another test may have left its store or client open.
    """
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith(names)]
    assert left == []
