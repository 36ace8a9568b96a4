"""What becomes of transactions when whoever decides or checks them is killed, anywhere in that: each ends once."""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.config import TransactionConfig
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.errors import TransactionDecided
from rmqclient.store.waiting.half_messages import GIVEN_UP_QUEUE, HALF_QUEUE, OPERATION_QUEUE, checks_of, identity
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.crash.processes.scenarios.transactions import CHECKS
from tests.support.oracle import reference
from tests.support.oracle.views import bodies, lose_last_operation, power_cut_image, published_records, queued_records
from tests.support.stores import (
    SMALL,
    TOPIC,
    abandon,
    appender_of,
    begin_transactions,
    body_of,
    first_halves,
    in_an_hour,
)
from tests.support.sweeps import crossed

TRANSACTIONS = 14
LARGE = 2_000
ONCE = (CrashPoint.BLANK_WRITTEN, CrashPoint.FILE_ALLOCATED, CrashPoint.OTHER_QUEUE_PUBLISHED)
"""Points that these tests do not reach often."""

APPEND = [point for point in CrashPoint if point < CrashPoint.PROGRESS_ADVANCED]
IN_A_DECISION = [*APPEND, CrashPoint.OTHER_QUEUE_PUBLISHED, CrashPoint.FILE_ALLOCATED]
IN_A_CHECK = [*APPEND, CrashPoint.PROGRESS_ADVANCED, CrashPoint.HALF_PASSED, CrashPoint.FILE_ALLOCATED]

COMMITTED = [body_of(number, LARGE) for number in range(0, TRANSACTIONS, 2)]
ALL = [body_of(number, LARGE) for number in range(TRANSACTIONS)]


def go_on(store: MessageStore) -> MessageStore:
    """The survivor uses the handle that it had before the death."""
    store.transactions._config = replace(store.config, transactions=TransactionConfig(check_max=CHECKS))
    return store


def reopen(store: MessageStore) -> MessageStore:
    """Everybody else dies, too; the next one builds the runtime file anew, and has only the old one to go by."""
    abandon(store)
    return open_store(store.root, replace(SMALL, transactions=TransactionConfig(check_max=CHECKS)), housekeeping=False)


def reboot(store: MessageStore) -> MessageStore:
    """The host dies, too, with everything on the disk: there is only the log and consumerOffset.json."""
    abandon(store)
    (store.root / "shared").unlink()
    return open_store(store.root, replace(SMALL, transactions=TransactionConfig(check_max=CHECKS)), housekeeping=False)


def decide_all(store: MessageStore) -> None:
    """Decide every transaction as the child does; nobody may have decided one otherwise."""
    for number, half in enumerate(first_halves(store)):
        try:
            store.transactions.decide(half, commit=number % 2 == 0)
        except TransactionDecided as error:
            assert error.committed == (number % 2 == 0)


def seen(store: MessageStore) -> list[bytes]:
    """Return what consumers of the topic can see, but for the first message, which is no test's."""
    return bodies(queued_records(store))[1:]


@pytest.mark.crash
@pytest.mark.guarantee("G31")
@crossed("repaired, survive, point", [go_on, reopen, reboot], [0, 5], IN_A_DECISION)
def test_a_killed_decision_is_made_once_or_not_at_all(
    store: MessageStore,
    root: Path,
    nursery: Nursery,
    point: CrashPoint,
    survive: int,
    repaired: Callable[[MessageStore], MessageStore],
) -> None:
    # Given that whoever decides is killed in the middle of it, some of what it decides having been checked before
    begin_transactions(store, TRANSACTIONS, LARGE)
    if survive:
        store.transactions.now_ms = in_an_hour
        store.transactions.check()
    notes = str(root.with_name("notes"))
    passes = 0 if point in ONCE else survive
    order = Order(scenario="decide", root=str(root), notes=notes, point=point.name, survive=passes)
    returned = len(nursery.kill_at_its_point(order))

    # Then what has returned is there, and nothing that was not decided
    survivor = repaired(store)
    survivor.transactions.pending()
    found = seen(survivor)
    assert found == COMMITTED[: len(found)]
    assert len(COMMITTED[: (returned + 1) // 2]) <= len(found) <= (returned + 2) // 2

    # And when another one goes on, each is decided once
    decide_all(survivor)
    assert survivor.transactions.pending() == []
    assert seen(survivor) == COMMITTED
    assert survivor.topics.max_offset(OPERATION_QUEUE) == TRANSACTIONS
    survivor.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G32")
@crossed("repaired, survive, point", [go_on, reopen, reboot], [0, 17], IN_A_CHECK)
def test_a_killed_check_loses_none_and_asks_no_oftener(
    store: MessageStore,
    root: Path,
    nursery: Nursery,
    point: CrashPoint,
    survive: int,
    repaired: Callable[[MessageStore], MessageStore],
) -> None:
    # Given that whoever checks is killed in the middle of it
    begin_transactions(store, TRANSACTIONS, LARGE)
    notes = str(root.with_name("notes"))
    passes = 0 if point in ONCE else survive
    order = Order(scenario="check", root=str(root), notes=notes, point=point.name, survive=passes)
    nursery.kill_at_its_point(order)

    # Then each transaction is pending, or given up, once
    survivor = repaired(store)
    appender_of(survivor).append(Message(TOPIC, b"after"))
    transactions = survivor.transactions
    assert Counter(half.body for half in [*transactions.pending(), *transactions.given_up()]) == Counter(ALL)

    # And when another one goes on, each is given up once, after as many checks as it should be
    transactions.now_ms = in_an_hour
    while transactions.pending():
        transactions.check()
    assert sorted(bodies(queued_records(survivor, GIVEN_UP_QUEUE))) == sorted(ALL)
    stored = [survivor.messages.at(HALF_QUEUE, number) for number in range(survivor.topics.max_offset(HALF_QUEUE))]
    assert Counter(map(identity, stored)) == dict.fromkeys(map(identity, stored), CHECKS + 1)
    assert Counter(map(checks_of, stored)) == dict.fromkeys(range(CHECKS + 1), TRANSACTIONS)
    assert seen(survivor) == [b"after"]
    survivor.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G31")
@pytest.mark.parametrize("scenario", ["decide", "check"])
@pytest.mark.parametrize("turn", range(4))
def test_killed_at_any_line_of_python_each_transaction_ends_once(
    store: MessageStore, root: Path, nursery: Nursery, scenario: str, turn: int
) -> None:
    # Given one process after the other that decides or checks and is killed at some line, early or late
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, turn {turn}")
    chosen = random.Random(seed)
    begin_transactions(store, TRANSACTIONS, LARGE)
    for number in range(5):
        notes = str(root.with_name(f"notes {number}"))
        order = Order(scenario=scenario, root=str(root), notes=notes, kill_at_line=chosen.randrange(1, 330))
        assert nursery.run(order) in (-signal.SIGKILL, 0)
        if turn % 2:
            store = reopen(store)
    # Then each is decided once
    decide_all(store)
    assert sorted(seen(store)) == sorted(COMMITTED)
    assert store.topics.max_offset(OPERATION_QUEUE) == TRANSACTIONS
    assert store.transactions.pending() == []
    store.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G31")
@pytest.mark.parametrize("point", [None, CrashPoint.OPERATION_FOUND, CrashPoint.TRANSACTIONS_SETTLED], ids=str)
def test_a_message_that_was_committed_without_its_operation_is_not_committed_again(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint | None
) -> None:
    # Given that the log ends between the two, and whoever finds it is killed
    begin_transactions(store, 4)
    halves = store.transactions.pending()
    store.transactions.decide(halves[2], commit=True)
    lose_last_operation(store)
    if point is not None:
        notes = str(root.with_name("notes"))
        nursery.kill_at_its_point(Order(scenario="decide", root=str(root), notes=notes, point=point.name))

    # Then the next one knows it to be committed
    with open_store(root, SMALL, housekeeping=False) as again:
        with pytest.raises(TransactionDecided) as raised:
            again.transactions.decide(halves[2], commit=False)
        assert raised.value.committed
        decide_all(again)
        assert sorted(seen(again)) == [body_of(0), body_of(2)]
        assert again.topics.max_offset(OPERATION_QUEUE) == 4
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G31")
@pytest.mark.guarantee("G32")
def test_after_a_power_cut_each_transaction_ends_once(store: MessageStore, root: Path) -> None:
    # Given decisions, renewals and what was given up, of which the file on disk tells only the first
    begin_transactions(store, TRANSACTIONS)
    halves = first_halves(store)
    store.transactions.now_ms = in_an_hour
    store.transactions.check()
    store.transactions.decide(halves[0], commit=True)
    store.transactions.decide(halves[1], commit=False)
    store.offsets.persist()
    told_to = store.state.published_to
    for number in range(2, 8):
        store.transactions.decide(halves[number], commit=number % 2 == 0)
        store.transactions.check()
    store.transactions._config = replace(store.config, transactions=TransactionConfig(check_max=CHECKS))
    store.transactions.check()
    records = [record for record in published_records(store) if record.commit_log_offset >= told_to]
    assert {record.topic for record in records} >= {GIVEN_UP_QUEUE.topic, HALF_QUEUE.topic, OPERATION_QUEUE.topic}
    for record in records:
        # When the power is cut behind any record
        end = record.commit_log_offset + record.size
        image = power_cut_image(root, root.with_name("image"), end, SMALL.commit_log_file_bytes)
        with open_store(image, housekeeping=False) as again:
            # Then every transaction is known once, and decided once
            transactions = again.transactions
            open_ones = [half.body for half in [*transactions.pending(), *transactions.given_up()]]
            assert len(open_ones) == len(set(open_ones))
            committed = seen(again)
            assert not {*committed} & {*open_ones}
            decide_all(again)
            found = seen(again)
        assert sorted(found) == sorted(body_of(number) for number in range(0, TRANSACTIONS, 2))
        assert reference.check_store(image) == []
        shutil.rmtree(image)
    abandon(store)
