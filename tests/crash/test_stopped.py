"""A process that is stopped, and not dead, while it holds a lock that others need: they are told; nothing breaks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, QueueGrant, layout, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.errors import PageCacheBusy, StoreBusy
from tests.crash.processes.child import run
from tests.crash.processes.nursery import notes_of
from tests.crash.processes.order import Order
from tests.crash.processes.pid_namespaces import NUMBER, need_pid_namespaces, process_of_a_namespace
from tests.support.host.forking import ROOT
from tests.support.host.load import slowdown
from tests.support.oracle.views import bodies, queued_records
from tests.support.stores import SMALL, SPAN, TOPIC, appender_of, body_of, grant_of

LOCK_TIMEOUT_MS = 150

HOLDS_THE_APPEND_LOCK = [
    point for point in CrashPoint if point < CrashPoint.APPEND_FINISHED and point is not CrashPoint.BLANK_WRITTEN
]
HOLDS_THE_GROUP_QUEUE = [
    CrashPoint.ACK_LOCKED,
    CrashPoint.ACK_MARKED,
    CrashPoint.ACK_ADVANCING,
    CrashPoint.ACK_CLEARED,
]


@pytest.fixture
def impatient(store: MessageStore, root: Path) -> Iterator[MessageStore]:
    """The same store through a second handle, that waits for locks for a short time only."""
    with open_store(root, replace(SMALL, lock_timeout_ms=LOCK_TIMEOUT_MS), housekeeping=False) as opened:
        yield opened
    store.close()


@pytest.mark.crash
@pytest.mark.parametrize("point", HOLDS_THE_APPEND_LOCK, ids=lambda point: point.name.lower())
def test_an_append_by_a_stopped_process_makes_others_busy_until_it_goes_on(
    impatient: MessageStore, root: Path, point: CrashPoint
) -> None:
    appender = appender_of(impatient)
    with stopped_child(order_of("append", root, point, survive=3)) as child:
        # Given a sender stopped inside of its append, when another one sends, then it is told in time
        started = time.monotonic()
        with pytest.raises(StoreBusy, match="nothing was written"):
            appender.append(Message(TOPIC, b"refused"))
        assert LOCK_TIMEOUT_MS / 1000 <= time.monotonic() - started < LOCK_TIMEOUT_MS / 1000 + 2 * slowdown()

        # And consumers are not stopped by it
        grant = grant_of(impatient)
        delivered = [message.body for message in grant.take(SPAN, SPAN)]
        assert delivered[:4] == [b"first", *map(body_of, range(3))]
        assert grant.acknowledge_offsets([0, 1, 2, 3])

        # And when the stopped one goes on, so do all
        child.send_signal(signal.SIGCONT)
        retry_until_sent(impatient, b"after")

    # And nothing was lost, torn, or written twice
    found = bodies(queued_records(impatient))
    sent_by_child = [body for body in found[1:] if body != b"after"]
    assert sent_by_child == [body_of(number) for number in range(len(sent_by_child))]
    assert len(sent_by_child) >= len(notes_of(order_of("append", root, point, survive=3)))
    assert found.count(b"after") == 1
    impatient.close()


@pytest.mark.crash
def test_senders_behind_a_stuck_append_are_told_before_their_lock_timeout(store: MessageStore, root: Path) -> None:
    # Given a sender stopped inside of its append
    config = replace(SMALL, page_cache_busy_timeout_ms=200, lock_timeout_ms=60_000)
    with (
        open_store(root, config, housekeeping=False) as patient,
        stopped_child(order_of("append", root, CrashPoint.RECORD_HALF_COPIED, survive=3)) as child,
    ):
        started = time.monotonic()
        # When another one sends, then it is told after so long, and not after a minute
        with pytest.raises(PageCacheBusy, match="for 200 ms") as raised:
            appender_of(patient).append(Message(TOPIC, b"refused"))
        assert 0.2 <= time.monotonic() - started < 5 * slowdown()
        assert (raised.value.retryable, raised.value.stored) == (True, False)
        assert f"process {child.pid}" in str(raised.value)

        # And once it goes on, so do all
        child.send_signal(signal.SIGCONT)
        retry_until_sent(patient, b"after")
    assert bodies(queued_records(store)).count(b"after") == 1
    store.close()


@pytest.mark.crash
def test_a_sender_that_waits_while_others_get_on_is_not_told_that_one_is_stuck(store: MessageStore, root: Path) -> None:
    # Given a lock that is never free for a sender whose patience is a second, while the log grows
    config = replace(SMALL, page_cache_busy_timeout_ms=1_000, lock_timeout_ms=60_000)
    with open_store(root, config, housekeeping=False) as impatient, ThreadPoolExecutor(1) as pool:
        appender = appender_of(impatient)
        appender.append(Message(TOPIC, b"before"))
        end = store.state.published_to
        with store.state.locked(store.state.append_mutex, LOCK_TIMEOUT_MS):
            sent = pool.submit(appender.append, Message(TOPIC, b"after"))
            until = time.monotonic() + 2.5
            while time.monotonic() < until:
                store.state.published_to += 1
                threading.Event().wait(0.002)  # far below the patience: a busy machine takes some of it
            store.state.published_to = end

        # Then it waits for as long as it takes
        assert sent.result(10).commit_log_offset == end
    store.close()


@pytest.mark.crash
@pytest.mark.guarantee("G1")
def test_a_stopped_sender_can_be_killed_and_the_others_go_on(impatient: MessageStore, root: Path) -> None:
    order = order_of("append", root, CrashPoint.RECORD_HALF_COPIED, survive=3)
    with stopped_child(order), pytest.raises(StoreBusy):
        appender_of(impatient).append(Message(TOPIC, b"refused"))
    appender_of(impatient).append(Message(TOPIC, b"after"))
    assert bodies(queued_records(impatient)) == [b"first", *map(body_of, range(3)), b"after"]


@pytest.mark.crash
@pytest.mark.guarantee("G86")
def test_a_waiter_that_is_killed_in_another_container_takes_no_lock_from_who_lives(
    impatient: MessageStore, root: Path
) -> None:
    # Given a sender that stands still inside of its append
    need_pid_namespaces()
    order = order_of("append", root, CrashPoint.RECORD_HALF_COPIED, survive=3)
    mutex = impatient.state.append_mutex
    word = layout.RUNTIME_HEADER.at["append_mutex"]
    with process_of_a_namespace(lambda: run(order)) as (_, stopped):
        until(lambda: " T " in Path(f"/proc/{stopped}/stat").read_text(encoding="ascii"))
        owner = mutex.owner
        assert mutex.process == NUMBER

        # When a process of the same number, of another namespace, is killed while it waits for the lock
        with process_of_a_namespace(lambda: append_to(root)):
            until(lambda: impatient.state.words.load(word) % 2 == 1)

        # Then the lock is still the first one's: who sends is told so
        with pytest.raises(StoreBusy, match=f"process {NUMBER}"):
            appender_of(impatient).append(Message(TOPIC, b"refused"))
        assert mutex.owner == owner

        # And when it goes on, so do all, and nothing is lost or torn
        os.kill(stopped, signal.SIGCONT)
        retry_until_sent(impatient, b"after")
    found = bodies(queued_records(impatient))
    sent_by_holder = [body for body in found[1:] if body != b"after"]
    assert sent_by_holder == [body_of(number) for number in range(len(sent_by_holder))]
    assert len(sent_by_holder) >= len(notes_of(order)) >= 4
    impatient.close()


@pytest.mark.crash
@pytest.mark.guarantee("G91")
def test_only_the_first_flush_waits_for_a_leader_that_is_stopped(impatient: MessageStore, root: Path) -> None:
    # Given the leader of a flush that was stopped, and another process that has seen this for long enough
    with stopped_child(order_of("append_durably", root, CrashPoint.FLUSH_SYNCED, survive=3)) as child:
        until(impatient.flusher.flush)

        # When it appends again, then it flushes at once
        for number in range(3):
            end = appender_of(impatient).append(Message(TOPIC, body_of(number))).commit_log_end
            assert impatient.flusher.flush()
            assert impatient.state.flushed_to >= end

        # And when the leader goes on, nothing is taken back
        child.send_signal(signal.SIGCONT)
        until(lambda: impatient.state.flushed_to > end)
    impatient.close()


@pytest.mark.crash
@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("point", HOLDS_THE_GROUP_QUEUE, ids=lambda point: point.name.lower())
def test_an_acknowledgement_by_a_stopped_process_does_not_stop_other_groups(
    impatient: MessageStore, root: Path, point: CrashPoint
) -> None:
    # Given a consumer stopped inside of its acknowledgement
    appender_of(impatient).append_batch([Message(TOPIC, body_of(number)) for number in range(50)])
    with stopped_child(order_of("acknowledge", root, point, survive=3)) as child:
        # Then nobody else can have its queue for its group, and is told in time
        with pytest.raises(StoreBusy):
            grant_of(impatient)

        # And other groups and senders are not stopped by it
        other = grant_of(impatient, "other")
        assert other.acknowledge_offsets([message.queue_offset for message in other.take(SPAN, SPAN)])
        appender_of(impatient).append(Message(TOPIC, b"after"))

        # And once it goes on the queue can be granted, and it is refused from then on
        child.send_signal(signal.SIGCONT)
        following = granted_in_the_end(impatient)
        assert child.wait() == 0

    # And no acknowledgement that was taken is lost
    taken = {int(note) for note in notes_of(order_of("acknowledge", root, point, survive=3))}
    assert taken >= {0, 1, 2}
    assert {message.queue_offset for message in following.take(SPAN, SPAN)} == set(range(52)) - taken


def order_of(scenario: str, root: Path, point: CrashPoint, survive: int) -> Order:
    return Order(
        scenario=scenario,
        root=str(root),
        notes=str(root.with_name("notes")),
        point=point.name,
        survive=survive,
        signal_number=signal.SIGSTOP,
    )


@contextmanager
def stopped_child(order: Order) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child, wait until it has stopped itself; it is killed in the end, stopped or not."""
    with subprocess.Popen([sys.executable, "-m", "tests.crash.processes.child", order.text()], cwd=ROOT) as child:
        try:
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), f"no {order.scenario} reaches {order.point}: {status}"
            yield child
        finally:
            child.kill()


def append_to(root: Path) -> None:
    """Append one message through a handle of its own."""
    with open_store(root, SMALL, housekeeping=False) as store:
        appender_of(store).append(Message(TOPIC, b"of a waiter that is killed"))


def until(holds: Callable[[], bool], limit_s: float = 20) -> None:
    """Look again and again until something holds."""
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def retry_until_sent(store: MessageStore, body: bytes) -> None:
    """Send as a patient application does: StoreBusy is retryable."""
    appender = appender_of(store)
    for _ in range(50):
        try:
            appender.append(Message(TOPIC, body))
        except StoreBusy as error:
            assert error.retryable
            assert not error.stored
        else:
            return
    pytest.fail("the store stayed busy")


def granted_in_the_end(store: MessageStore) -> QueueGrant:
    for _ in range(50):
        try:
            return grant_of(store)
        except StoreBusy as error:
            assert error.retryable
    pytest.fail("the queue stayed busy")
