"""What becomes of messages in the timer when whoever ends their wait is killed, anywhere in that: each ends once."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, crash_points, layout, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.waiting.timer_bits import QUEUE
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.support.oracle import reference
from tests.support.oracle.views import bodies, power_cut_image, published_records, queued_records
from tests.support.stores import SMALL, TOPIC, abandon, after_every_delay, appender_of, body_of
from tests.support.sweeps import crossed

MESSAGES = 70
LARGE = 1_200
DUE = 1 << 41
"""In the year 2039; each of seven messages is due a ms later."""

APPEND = [
    *(point for point in CrashPoint if point <= CrashPoint.PROGRESS_ADVANCED),
    CrashPoint.FILE_ALLOCATED,
]
ONCE = (CrashPoint.BLANK_WRITTEN, CrashPoint.FILE_ALLOCATED)
"""Points that these tests do not reach often."""

SENT = [body_of(number, LARGE) for number in range(MESSAGES)]
IN_ORDER = sorted(SENT, key=lambda body: (SENT.index(body) % 7, SENT.index(body)))


def go_on(store: MessageStore) -> MessageStore:
    """The survivor uses the handle that it had before the death."""
    return store


def reopen(store: MessageStore) -> MessageStore:
    """Everybody else dies, too; the next one builds the runtime file anew, and has only the old one to go by."""
    abandon(store)
    return open_store(store.root, housekeeping=False)


def reboot(store: MessageStore) -> MessageStore:
    """The host dies, too, with everything on the disk: there is only the log."""
    abandon(store)
    (store.root / "shared").unlink()
    return open_store(store.root, housekeeping=False)


def long_after_due() -> int:
    """Return a time, in ms, at which everything is due."""
    return DUE + 3_600_000


def deliver_all(store: MessageStore) -> None:
    """Look until nothing waits any more, as if all were due."""
    store.timer.now_ms = long_after_due
    while store.timer.look() == 0 or any(True for _ in store.timer.pending()):
        pass


def delivered(store: MessageStore) -> list[bytes]:
    """Return what was delivered; the first message of the store is no test's."""
    return bodies(queued_records(store))[1:]


@pytest.fixture
def timed(store: MessageStore) -> MessageStore:
    """Send messages that wait."""
    appender = appender_of(store)
    for number, body in enumerate(SENT):
        appender.append(Message(TOPIC, body), due_ms=DUE + number % 7)
    return store


def kill(nursery: Nursery, root: Path, scenario: str, point: CrashPoint, survive: int) -> list[str]:
    """Let a child do something until it is killed at a point; return what it has said."""
    passes = 0 if point in ONCE else survive
    notes = str(root.with_name(f"notes {scenario}"))
    order = Order(scenario=scenario, root=str(root), notes=notes, point=point.name, survive=passes)
    return nursery.kill_at_its_point(order)


@pytest.mark.crash
@pytest.mark.guarantee("G33")
@crossed("repaired, survive, point", [go_on, reopen, reboot], [0, 65], APPEND)
def test_a_killed_delivery_leaves_one_copy_of_each_message(
    timed: MessageStore,
    root: Path,
    nursery: Nursery,
    point: CrashPoint,
    survive: int,
    repaired: Callable[[MessageStore], MessageStore],
) -> None:
    assert kill(nursery, root, "deliver_timed", point, survive) == []
    survivor = repaired(timed)
    deliver_all(survivor)
    assert delivered(survivor) == IN_ORDER
    assert list(survivor.timer.pending()) == []
    survivor.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G34")
@crossed("repaired, survive, point", [go_on, reopen, reboot], [0, 9], APPEND)
def test_a_killed_cancel_is_done_or_not(
    timed: MessageStore,
    root: Path,
    nursery: Nursery,
    point: CrashPoint,
    survive: int,
    repaired: Callable[[MessageStore], MessageStore],
) -> None:
    ids = [pending.message_id for pending in timed.timer.pending()]
    noted = kill(nursery, root, "cancel_timed", point, survive)
    survivor = repaired(timed)
    appender_of(survivor).append(Message(TOPIC, b"after"))  # and with it what was cut short is settled
    left = [pending.message_id for pending in survivor.timer.pending()]
    gone = [message_id for message_id in ids if message_id not in left]
    assert gone in (noted, [message_id for message_id in ids[::2] if message_id in [*noted, *gone]])
    assert len(noted) <= len(gone) <= len(noted) + 1
    # And another one goes on
    appender = appender_of(survivor)
    assert all(survivor.timer.cancel(message_id, appender) != (message_id in gone) for message_id in ids[::2])
    deliver_all(survivor)
    expected = [body for body, message_id in zip(IN_ORDER, ids, strict=True) if message_id in ids[1::2]]
    assert delivered(survivor) == [b"after", *expected]
    survivor.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G35")
@crossed("repaired, survive, point", [go_on, reopen, reboot], [0, 40], APPEND)
def test_a_killed_roll_leaves_each_message_waiting_once(
    timed: MessageStore,
    root: Path,
    nursery: Nursery,
    point: CrashPoint,
    survive: int,
    repaired: Callable[[MessageStore], MessageStore],
) -> None:
    ids = Counter(pending.message_id for pending in timed.timer.pending())
    assert kill(nursery, root, "roll_timed", point, survive) == []
    survivor = repaired(timed)
    survivor.appenders.settle()
    assert Counter(pending.message_id for pending in survivor.timer.pending()) == ids
    end = survivor.state.published_to
    survivor.timer.roll_below(end)
    assert Counter(pending.message_id for pending in survivor.timer.pending()) == ids
    assert all(
        survivor.messages.at(QUEUE, pending.queue_offset).commit_log_offset >= end
        for pending in survivor.timer.pending()
    )
    deliver_all(survivor)
    assert sorted(delivered(survivor)) == sorted(SENT)
    survivor.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G33")
@pytest.mark.parametrize("point", [CrashPoint.TIMER_CLEARING, CrashPoint.TIMER_CLEARED], ids=str)
@pytest.mark.parametrize("repaired", [go_on, reopen, reboot])
def test_a_killed_move_over_what_is_done_forgets_nothing(
    timed: MessageStore,
    root: Path,
    nursery: Nursery,
    point: CrashPoint,
    repaired: Callable[[MessageStore], MessageStore],
) -> None:
    kill(nursery, root, "deliver_timed", point, 0)
    survivor = repaired(timed)
    assert list(survivor.timer.pending()) == []
    appender_of(survivor).append(Message(TOPIC, b"later"), due_ms=DUE)
    deliver_all(survivor)
    survivor.timer.bits.advance()
    assert survivor.timer.bits.done_to == MESSAGES // 64 * 64
    assert delivered(survivor) == [*IN_ORDER, b"later"]
    survivor.close()


@pytest.mark.crash
@pytest.mark.guarantee("G33")
@pytest.mark.parametrize("turn", range(6))
def test_killed_at_any_line_of_python_each_message_is_delivered_once(
    timed: MessageStore, root: Path, nursery: Nursery, turn: int
) -> None:
    # Given one process after the other that delivers or rolls, and is killed at some line, early or late
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, turn {turn}")
    chosen = random.Random(seed)
    for number in range(5):
        scenario = chosen.choice(["deliver_timed", "roll_timed"])
        notes = str(root.with_name(f"notes {number}"))
        order = Order(scenario=scenario, root=str(root), notes=notes, kill_at_line=chosen.randrange(1, 900))
        assert nursery.run(order) in (-signal.SIGKILL, 0)
    # Then each message is there once
    survivor = (go_on, reopen, reboot)[turn % 3](timed)
    deliver_all(survivor)
    assert sorted(delivered(survivor)) == sorted(SENT)
    survivor.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G33")
@pytest.mark.guarantee("G34")
@pytest.mark.parametrize("persisted", [False, True])
def test_after_a_power_cut_each_message_ends_once(timed: MessageStore, root: Path, persisted: bool) -> None:
    # Given messages that were delivered, cancelled and rolled, of which the file on disk tells some or none
    store, appender = timed, appender_of(timed)
    ids = [pending.message_id for pending in store.timer.pending()]
    body_by_id = dict(zip(ids, IN_ORDER, strict=True))
    store.timer.now_ms = lambda: DUE + 1
    store.timer.look()
    store.timer.cancel(ids[25], appender)
    if persisted:
        store.timer.persist()
    cut_from = store.state.published_to
    store.timer.now_ms = lambda: DUE + 2
    store.timer.look()
    store.timer.cancel(ids[40], appender)
    store.timer.roll_below(store.state.published_to)
    store.timer.cancel(ids[41], appender)
    store.timer.now_ms = long_after_due
    store.timer.look()
    records = [record for record in published_records(store) if record.commit_log_offset >= cut_from]
    operations = {record.property_map.get("TIMER_DEL_UNIQKEY", ""): record for record in records}
    chosen = [*records[::9], *(operations[ids[number]] for number in (40, 41)), records[-1]]
    for record in chosen:
        # When the power is cut behind any of them
        end = record.commit_log_offset + record.size
        image = power_cut_image(root, root.with_name("image"), end, SMALL.commit_log_file_bytes)
        cancelled = {ids[25], *(each for each in (ids[40], ids[41]) if operations[each].commit_log_offset < end)}
        with open_store(image, housekeeping=False) as again:
            deliver_all(again)
            found = delivered(again)
        # Then each message is delivered once, unless it was cancelled
        assert sorted(found) == sorted(body for each, body in body_by_id.items() if each not in cancelled)
        assert reference.check_store(image) == []
        shutil.rmtree(image)
    abandon(store)


@pytest.mark.crash
def test_nothing_is_due_before_its_time_in_these_tests() -> None:
    assert after_every_delay() < DUE


@pytest.mark.crash
@pytest.mark.guarantee("G33")
def test_an_append_that_was_cut_short_marks_no_message_one_turn_later(
    root: Path, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given so few bits that they are soon used again, and a process that dies when it has set the last one of a word
    abandon(store)
    monkeypatch.setattr(layout, "TIMER_BITS", 128)
    survivor = open_store(root, housekeeping=False)
    appender = appender_of(survivor)
    appender.append_batch([Message(TOPIC, b"first turn") for _ in range(64)], due_ms=DUE)
    child = os.fork()
    if child == 0:
        deliver_until_killed(root, 63)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)

    # When its bits are cleared, before anybody appends
    survivor.timer.bits.advance()
    assert survivor.timer.bits.done_to == 64

    # Then the messages that get them are delivered
    appender.append_batch([Message(TOPIC, b"rest of it") for _ in range(64)], due_ms=DUE)
    deliver_all(survivor)
    survivor.timer.bits.advance()
    appender.append_batch([Message(TOPIC, b"next turn") for _ in range(64)], due_ms=DUE)
    deliver_all(survivor)
    assert Counter(delivered(survivor)) == {b"first turn": 64, b"rest of it": 64, b"next turn": 64}
    survivor.close()


def deliver_until_killed(root: Path, survive: int) -> None:
    """Deliver what waits, for a forked child, and die when the bit of one more message is set."""
    try:
        store = open_store(root, housekeeping=False)
        store.timer.now_ms = long_after_due
        crash_points.arm(CrashPoint.PROGRESS_ADVANCED, passes=survive)
        store.timer.look()
    finally:
        os._exit(1)
