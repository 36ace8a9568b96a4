"""Fork: what is registered leaves itself to the parent in every forked child, and nowhere else."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable

from rmqclient.store import fork


class Handle:
    """Notes in which order handles leave; what it notes in a child stays there."""

    def __init__(self, name: str, left: list[str], error: Exception | None = None) -> None:
        self._name = name
        self._left = left
        self._error = error

    def leave_to_parent(self) -> None:
        self._left.append(self._name)
        if self._error is not None:
            raise self._error


def in_child(question: Callable[[], bool]) -> bool:
    """Ask in a forked child."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if question() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_in_a_child_the_handle_registered_last_leaves_first() -> None:
    left: list[str] = []
    handles = [Handle(name, left) for name in ("lock", "producer", "table")]
    for handle in handles:
        fork.register(handle)
    assert in_child(lambda: left == ["table", "producer", "lock"])
    assert left == []


def test_one_that_fails_keeps_no_other_from_leaving() -> None:
    left: list[str] = []
    first, failing = Handle("first", left), Handle("failing", left, OSError("planted"))
    fork.register(first)
    fork.register(failing)
    assert in_child(lambda: left == ["failing", "first"] and fork.held_off.acquire(blocking=False))
    assert first is not failing


def test_a_handle_that_nobody_has_is_forgotten() -> None:
    left: list[str] = []
    fork.register(Handle("gone", left))
    gc.collect()
    assert in_child(lambda: left == [])


def test_a_fork_waits_while_another_thread_opens_something() -> None:
    left: list[str] = []
    registered = threading.Event()
    kept: list[Handle] = []

    def open_slowly() -> None:
        with fork.held_off:
            registered.set()
            time.sleep(0.05)
            kept.append(Handle("slow", left))
            fork.register(kept[0])

    opening = threading.Thread(target=open_slowly)
    opening.start()
    registered.wait()
    assert in_child(lambda: left == ["slow"])
    opening.join()
