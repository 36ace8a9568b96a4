"""A housekeeper that is stopped, and not dead: another process does its work, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.health import findings, words
from rmqclient.health.findings import CRITICAL, OK, WARNING
from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.config import FlushConfig
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.errors import StoreBusy
from rmqclient.store.files.file_lock import GATE_BYTE, HOUSEKEEPER_BYTE, LockFile
from rmqclient.store.observe.reading import Reading
from rmqclient.store.upkeep import group_commit, housekeeper
from tests.crash.processes.nursery import notes_of
from tests.crash.processes.order import Order
from tests.support.host.forking import ROOT
from tests.support.host.load import slowdown
from tests.support.oracle.views import bodies, queued_records
from tests.support.stores import SMALL, TOPIC, appender_of, body_of, grant_of

MOST_S = 5
"""What waits for its time goes on so soon after a housekeeper was stopped."""
BECOMES_S = 2.5
"""Another process is the housekeeper so soon."""
DELAYED = 8
FLUSHING = replace(SMALL, flush=FlushConfig(interval_ms=50, thorough_interval_ms=50))

STOPPED_AT = {
    "idle": None,
    "delivering": CrashPoint.APPEND_FINISHED,
    "flushing": CrashPoint.FLUSH_SYNCED,
    "writing offsets": CrashPoint.OFFSETS_TEMPORARY,
    "indexing": CrashPoint.INDEX_WRITTEN,
}
HOLDS_WHAT_OTHERS_WAIT_FOR = ("writing offsets", "indexing")


@pytest.mark.sweep
@pytest.mark.crash
@pytest.mark.guarantee("G91")
@pytest.mark.parametrize("doing", STOPPED_AT)
def test_what_waits_for_its_time_goes_on_in_seconds_while_the_housekeeper_is_stopped(root: Path, doing: str) -> None:
    # Given a housekeeper that was stopped in the middle of its work, and another process that has the store open
    with (
        beginning(root),
        stopped_housekeeper(root, STOPPED_AT[doing]) as child,
        open_store(root, FLUSHING) as store,
    ):
        # When more messages come that wait for their time
        send_delayed(store, range(DELAYED, 2 * DELAYED))

        # Then delays and flushes go on by the other process
        allowed_s = MOST_S + 1  # a second is what the messages wait for
        poll(lambda: set(delivered(store)) == set(map(body_of, range(2 * DELAYED))), allowed_s)
        poll(lambda: store.state.flushed_to == store.state.published_to, allowed_s)
        assert store.housekeeper is not None
        assert store.housekeeper.has_role

        # And a check says who stands still, and how it goes on
        with Reading(str(root)) as seen:
            assert findings.housekeeper(seen).level == OK
            (process,) = seen.processes.look().standing
            (found,) = findings.standing([process])
        holds = any(words.is_waited_for(byte) for byte in process.held if byte < words.OWNERS)  # a flush is not alone
        assert holds or doing not in HOLDS_WHAT_OTHERS_WAIT_FOR
        assert found.subject == str(child.pid)
        assert found.level == (CRITICAL if holds else WARNING)
        assert f"kill -CONT {child.pid}" in found.remedy

        # And when it goes on, so does everything, and nothing was delivered twice
        child.send_signal(signal.SIGCONT)
        send_delayed(store, range(2 * DELAYED, 3 * DELAYED))
        poll(lambda: len(delivered(store)) >= 3 * DELAYED, allowed_s)
        with Reading(str(root)) as seen:
            assert seen.processes.look().standing == []
        assert Counter(delivered(store)) == Counter(map(body_of, range(3 * DELAYED)))


@pytest.mark.crash
@pytest.mark.guarantee("G91")
def test_a_flush_goes_on_in_seconds_while_the_housekeeper_is_stopped_in_the_midst_of_one(root: Path) -> None:
    # Given a housekeeper that was stopped as the leader of a flush
    with (
        beginning(root),
        stopped_housekeeper(root, CrashPoint.FLUSH_SYNCED),
        open_store(root, FLUSHING) as store,
    ):
        # When another process has become the housekeeper, then it flushes in what is left of the five seconds
        end = appender_of(store).append(Message(TOPIC, b"first")).commit_log_end
        keeper = store.housekeeper
        assert keeper is not None
        poll(lambda: keeper.has_role, BECOMES_S)
        poll(lambda: store.state.flushed_to >= end, MOST_S - BECOMES_S)


@pytest.mark.guarantee("G91")
def test_the_waits_for_a_housekeeper_that_is_stopped_in_a_flush_add_up_to_less_than_five_seconds() -> None:
    becomes_s = housekeeper._LEASE_NS / 1e9 + housekeeper._ATTEMPT_MS / 1e3
    assert becomes_s <= BECOMES_S
    assert becomes_s + group_commit._LEADER_STANDS_AFTER_S < MOST_S


@pytest.mark.crash
@pytest.mark.guarantee("G91")
def test_a_check_says_that_the_only_housekeeper_stands_still(root: Path) -> None:
    # Given a housekeeper that is stopped, and nobody who could take its role
    with stopped_housekeeper(root, None) as child, Reading(str(root)) as seen:
        poll(lambda: findings.housekeeper(seen).level == CRITICAL, 20)
        assert f"process {child.pid} stands still" in findings.housekeeper(seen).state


def test_a_housekeeper_that_leaves_its_role_to_another_one_is_not_said_to_have_stood_still(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unlock = LockFile.unlock
    with open_store(root, SMALL) as store:
        words, keeper = store.state.words, store.housekeeper
        assert keeper is not None
        poll(lambda: keeper.has_role, 20)

        def unlocked_and_taken(lock: LockFile, byte: int) -> None:
            unlock(lock, byte)
            if byte == HOUSEKEEPER_BYTE:  # another process is quicker than this one's next step
                words.store(housekeeper._TURN, words.load(housekeeper._TURN) + 1)

        monkeypatch.setattr(LockFile, "unlock", unlocked_and_taken)
    assert "stood still" not in caplog.text


@pytest.mark.crash
@pytest.mark.guarantee("G91")
def test_who_waits_for_a_process_that_stands_still_is_told_which_one_it_is(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqclient.store.files.file_lock._LOOK_AFTER_S", 0.2)
    with open_store(root, SMALL, housekeeping=False):
        # Given a process that was stopped while it held the gate
        code = f"""
import os, signal
from pathlib import Path
from rmqclient.store.files.file_lock import GATE_BYTE, HOUSEKEEPER_BYTE, LockFile
with LockFile(Path({str(root / "lock")!r})).held(GATE_BYTE):
    os.kill(os.getpid(), signal.SIGSTOP)
"""
        with subprocess.Popen([sys.executable, "-c", code]) as child:
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)

            # When another one wants to open the store, then it does not wait for two minutes
            began = time.monotonic()
            with pytest.raises(StoreBusy, match=f"kill -CONT {child.pid}") as raised:
                open_store(root, SMALL)
            assert time.monotonic() - began < 20 * slowdown()
            assert raised.value.holders == (child.pid,)

            # And it gets through the gate once that one goes on
            child.send_signal(signal.SIGCONT)
            assert child.wait() == 0
        open_store(root, SMALL).close()


def test_a_holder_that_runs_is_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqclient.store.files.file_lock._LOOK_AFTER_S", 0.02)
    root.mkdir()
    one, other = LockFile(root / "lock"), LockFile(root / "lock")
    with one.held(GATE_BYTE), pytest.raises(StoreBusy) as raised:
        other.wait_exclusive(GATE_BYTE, 0.2)
    assert raised.value.holders == (os.getpid(),)
    one.close()
    other.close()


@contextmanager
def beginning(root: Path) -> Iterator[None]:
    """Open a store with messages that wait and with something to write, and leave the work to others."""
    with open_store(root, SMALL, housekeeping=False) as store:
        appender_of(store).append(Message(TOPIC, b"first"))
        grant = grant_of(store)
        assert grant.acknowledge_offsets([message.queue_offset for message in grant.take(1, 1)])
        send_delayed(store, range(DELAYED))
        yield


@contextmanager
def stopped_housekeeper(root: Path, point: CrashPoint | None) -> Iterator[subprocess.Popen[bytes]]:
    """Start a housekeeper and stop it, at a point if one is given; it is killed in the end."""
    order = Order(
        scenario="keep_house",
        root=str(root),
        notes=str(root.with_name("notes")),
        point=point.name if point else "",
        signal_number=signal.SIGSTOP,
    )
    with subprocess.Popen([sys.executable, "-m", "tests.crash.processes.child", order.text()], cwd=ROOT) as child:
        try:
            if point is None:
                poll(lambda: Path(order.notes).exists() and bool(notes_of(order)), 30)
                child.send_signal(signal.SIGSTOP)
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), f"no housekeeper reaches {order.point}: {status}"
            yield child
        finally:
            child.kill()


def send_delayed(store: MessageStore, numbers: range) -> None:
    appender = appender_of(store)
    for number in numbers:
        if number % 2:
            appender.append(Message(TOPIC, body_of(number)), delay_level=1)
        else:
            appender.append_batch([Message(TOPIC, body_of(number))], due_ms=time.time_ns() // 1_000_000 + 900)


def delivered(store: MessageStore) -> list[bytes]:
    return [body for body in bodies(queued_records(store)) if body != b"first"]


def poll(is_so: Callable[[], bool], most_s: float) -> None:
    """Return when something is so; fail after the time limit, which is longer on a machine that is busy then."""
    begun = time.monotonic()
    while not is_so():
        waited = time.monotonic() - begun
        assert waited < most_s or waited < most_s * slowdown(), "it did not come true in time"
        time.sleep(0.01)
