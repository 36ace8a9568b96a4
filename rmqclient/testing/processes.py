"""Processes: handlers in real processes, for tests that kill them or want more than one.

A process is forked from that of the test, so that handlers may be functions of a test. It opens the store anew, as a
worker does, follows the same clock, and ends without running anything else of its parent.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from rmqclient.app import App
from rmqclient.calling.hooks import hooks_of
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.failures.retry import retry_topic
from rmqclient.handler import Handler, is_async
from rmqclient.names import function_name
from rmqclient.store import MessageStore, crash_points
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.errors import UnknownTopic

ENDS_S = 30.0
"""Real seconds within which a process has to get ready, to come to its point, and to end."""

_LOOK_S = 0.001
_ORPHANED_S = 0.2
_NOTHING_TO_DO = 3


class Consumer(Protocol):
    """What handles messages while a test drains."""

    def hold(self) -> None:
        """Begin no further message."""

    def resume(self) -> None:
        """Begin messages again."""

    def is_idle(self) -> bool:
        """Tell whether there is nothing to do."""


class Workers:
    """The handlers of some applications in other processes, as far as the store shows them. They are never held."""

    def __init__(self, store: MessageStore, apps: Sequence[App]) -> None:
        self._store = store
        handlers = [each for app in apps for each in app.handlers if not each.broadcast]
        self._taken = {(each.group, each.topic) for each in handlers}
        self._taken |= {(each.group, retry_topic(each.group)) for each in handlers}

    def hold(self) -> None:
        """Do nothing: workers go on."""

    def resume(self) -> None:
        """Do nothing: workers go on."""

    def is_idle(self) -> bool:
        """Tell whether the groups have finished every message of their topics."""
        return all(self._is_finished(group, topic) for group, topic in self._taken)

    def _is_finished(self, group: str, topic: str) -> bool:
        topics, groups = self._store.topics, self._store.groups
        try:
            queues = topics.queues(topic)
        except UnknownTopic:
            return True
        ends = {topics.slot(queue): topics.max_offset(queue) for queue in queues}
        found = {number: groups.find(group, number) for number, end in ends.items() if end}
        return all(slot is not None and slot.committed_offset >= ends[number] for number, slot in found.items())


def crash(root: Path, apps: Sequence[App], at: CrashPoint | str | Callable[..., object], passes: int) -> int:
    """Handle what is due in a process that dies at a point; return its pid. Raises AssertionError if it does not."""
    point = CrashPoint[at.upper()] if isinstance(at, str) else at
    handlers = [_dying(each, passes) if each.function is at else each for app in apps for each in app.handlers]

    def handle() -> int:
        consumer = PushConsumer(root, handlers, member_name="crashing", hooks=hooks_of(apps))
        consumer.hold()
        consumer.start()
        if isinstance(point, CrashPoint):
            crash_points.arm(point, passes=passes)
        consumer.resume()
        while not (consumer.is_idle() and consumer.is_idle()):
            time.sleep(_LOOK_S)
        return _NOTHING_TO_DO

    pid = _forked(handle)
    code = _ended(pid)
    if code != -signal.SIGKILL:
        name = function_name(point) if callable(point) and not isinstance(point, CrashPoint) else repr(point)
        raise AssertionError(
            f"the worker did not come to {name}: "
            + ("it had nothing to do any more" if code == _NOTHING_TO_DO else f"it ended with {code}")
        )
    return pid


@contextmanager
def workers(root: Path, apps: Sequence[App], count: int) -> Iterator[list[int]]:
    """Run the handlers in so many processes until the end of the block; yields their pids when all take messages."""
    handlers = [each for app in apps for each in app.handlers]
    crons = [each for app in apps for each in app.crons]
    pids: list[int] = []
    try:
        for number in range(count):
            reading, writing = os.pipe()

            def work(number: int = number, writing: int = writing) -> int:
                name = f"worker-{number + 1}"
                consumer = PushConsumer(root, handlers, member_name=name, crons=crons, hooks=hooks_of(apps))
                told = threading.Event()
                signal.signal(signal.SIGTERM, lambda *_: told.set())
                consumer.start(on_ready=lambda: os.close(writing))
                parent = os.getppid()
                while not told.wait(_ORPHANED_S) and os.getppid() == parent:
                    pass
                consumer.stop_taking()
                consumer.drain(ENDS_S)
                consumer.close()
                return 0

            pids.append(_forked(work))
            os.close(writing)
            select.select([reading], [], [], ENDS_S)
            os.close(reading)
        yield pids
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in pids:
            _ended(pid)


def _dying(handler: Handler, passes: int) -> Handler:
    """Return a handler whose function kills its process when it is called, after so many calls."""
    left = [passes]
    function = handler.function

    def count() -> None:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    @functools.wraps(function)
    def die(*given: Any, **named: Any) -> Any:
        count()
        return function(*given, **named)

    @functools.wraps(function)
    async def die_async(*given: Any, **named: Any) -> Any:
        count()
        return await function(*given, **named)

    return replace(handler, function=die_async if is_async(function) else die)


def _forked(do: Callable[[], int]) -> int:
    """Do something in a forked child, which ends with the returned code, and with 1 after an exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads in the parent; the child opens all anew
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = do()
        except BaseException:  # noqa: BLE001 - the child must not return into the runner of the tests
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def _ended(pid: int) -> int:
    """Wait for the end of a child, and kill it when the time is up; return its exit code, or the signal below zero."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return 0
    try:
        ready, _, _ = select.select([descriptor], [], [], ENDS_S)
        if not ready:
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if ready else -signal.SIGALRM
        return 0
    finally:
        os.close(descriptor)
