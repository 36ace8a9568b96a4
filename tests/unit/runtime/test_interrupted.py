"""An exception that a signal handler raises, wherever it comes, leaves no lock of a store held."""

from __future__ import annotations

import gc
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rmqclient.local.backend import local_backend
from rmqclient.store.files.file_lock import BROKER_BYTE, TOPIC_BYTE, LockFile
from rmqclient.store.message_store import MessageStore, open_store
from rmqclient.store.runtime.group_table import GroupQueueSlot
from tests.support.stores import SMALL, TOPIC, grant_of
from tests.support.sweeps import share_of


class Interrupted(BaseException):
    """What a handler raises: a time limit, or Ctrl-C where the program goes on."""


@pytest.fixture(autouse=True)
def no_callback_of_the_collector() -> Iterator[None]:
    """Take away what Hypothesis has the collector call: Python swallows an exception that is raised in such a call."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = callbacks


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "s", SMALL, housekeeping=False) as opened:
        opened.topics.create(TOPIC, 1)
        grant_of(opened)
        yield opened


def hold_a_byte(store: MessageStore) -> None:
    with store.lock.held(TOPIC_BYTE):
        pass


def hold_a_mutex(store: MessageStore) -> None:
    with store.state.locked(store.state.table_mutex, 1_000):
        pass


def hold_a_group_queue(store: MessageStore) -> None:
    with GroupQueueSlot(store.state, 0).locked(1_000):
        pass


def send_alone(store: MessageStore) -> None:
    with store.once.alone(TOPIC, "key"):
        pass


def schedule_alone(store: MessageStore) -> None:
    with local_backend(store).alone("name", 1):
        pass


def hold_a_condition(store: MessageStore) -> None:
    with store.once._changed:
        pass


HOLDS = [hold_a_byte, hold_a_mutex, hold_a_group_queue]


@pytest.mark.guarantee("G87")
@pytest.mark.parametrize("hold", HOLDS)
def test_an_exception_at_any_instruction_leaves_no_lock_held(
    store: MessageStore, hold: Callable[[MessageStore], None]
) -> None:
    steps = 0
    while is_interrupted(lambda: hold(store), at=steps):
        check_free(store)
        steps += 1
    assert steps > 10


@pytest.mark.guarantee("G87")
@pytest.mark.parametrize("hold", [*HOLDS, hold_a_condition, send_alone, schedule_alone])
def test_an_exception_from_a_signal_at_any_moment_leaves_no_lock_held(
    store: MessageStore, hold: Callable[[MessageStore], None]
) -> None:
    def hold_thrice() -> None:
        for _ in range(3):
            hold(store)

    kept: list[BaseException | None] = [None]  # as a notebook keeps the last traceback, and what its frames refer to
    with time_limits():
        for _ in range(share_of(1_000)):
            kept[0] = limited(hold_thrice, random.uniform(1e-6, 2e-4))
            check_free(store)


@pytest.mark.guarantee("G87")
def test_a_close_that_an_exception_ends_is_gone_on_with_by_the_next_one(tmp_path: Path) -> None:
    with time_limits():
        for _ in range(share_of(30)):
            store = open_store(tmp_path / "s", SMALL, housekeeping=False)
            limited(store.close, random.uniform(1e-6, 2e-2))
            store.close()
            other = LockFile(store.root / "lock")
            assert other.try_exclusive(BROKER_BYTE)
            other.close()


@pytest.mark.guarantee("G87")
def test_a_close_that_ends_at_its_last_step_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path / "s", SMALL, housekeeping=False)

    def interrupt() -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(store.lock, "close", interrupt)
        with pytest.raises(Interrupted):
            store.close()
    store.close()
    assert not store.lock.is_open


@contextmanager
def time_limits() -> Iterator[None]:
    """Let SIGALRM raise."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def limited(work: Callable[[], None], seconds: float) -> BaseException | None:
    """Do a work until its time is up; return what ended it then."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        work()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted as error:
        return error
    finally:
        with suppress(Interrupted):
            signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def is_interrupted(work: Callable[[], None], at: int) -> bool:
    """Raise when so many instructions were begun; return whether the work was that long."""
    begun = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal begun
        frame.f_trace_opcodes = True
        if event == "opcode":
            begun += 1
            if begun > at:
                sys.settrace(None)
                raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False


def check_free(store: MessageStore) -> None:
    """Look with another handle, and as another thread of this process would."""
    other = LockFile(store.root / "lock")
    try:
        assert other.try_exclusive(TOPIC_BYTE)
        assert store.lock._own == {BROKER_BYTE}
        assert not any(section.locked() for section in store.lock._sections.values())
    finally:
        other.close()
    assert store.state.table_mutex.owner == 0
    assert [slot.mutex.owner for slot in store.groups] == [0] * len(list(store.groups))
    assert store.once._changed.acquire(blocking=False)
    store.once._changed.release()
    assert store.once._senders == 0
