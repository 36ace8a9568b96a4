"""Random ``kill -9`` of those who decide and check transactions, again and again, and hosts that start again."""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

from rmqclient.store import MessageStore, open_store
from rmqclient.store.config import TransactionConfig
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.errors import TransactionDecided
from rmqclient.store.waiting.half_messages import OPERATION_QUEUE
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.crash.processes.scenarios.transactions import CHECKS
from tests.support.oracle import reference
from tests.support.stores import QUEUE, SMALL, abandon, begin_transactions, first_halves, in_an_hour, number_of
from tests.torture.result import Result, Rig

CLAIM = (
    "Whichever process is killed, and wherever, a transaction is committed once, or rolled back, or given up after as "
    "many checks."
)

_POINTS = [
    *(point for point in CrashPoint if point <= CrashPoint.OTHER_QUEUE_PUBLISHED),
    *(CrashPoint.HALF_PASSED, CrashPoint.FILE_ALLOCATED, CrashPoint.REPAIR_STARTED, CrashPoint.REPAIR_ZEROED),
]
_MOST_LINES = 450


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Do so many rounds, each with a new store."""
    chosen = random.Random(seed)
    counted: Counter[str] = Counter()
    result = Result(CLAIM)
    with Nursery() as nursery:
        for number in range(rounds):
            directory = scratch / f"round {number}"
            directory.mkdir()
            for problem in _round(chosen, nursery, directory, counted):
                result.problems.append(f"round {number} of seed {seed}: {problem}")
            shutil.rmtree(directory)
    result.figures = {"rounds": rounds, **counted}
    return result


def _round(chosen: random.Random, nursery: Nursery, directory: Path, counted: Counter[str]) -> list[str]:
    root, transactions = directory / "store", chosen.randrange(2, 24)
    config = replace(SMALL, transactions=TransactionConfig(check_max=CHECKS))
    store = open_store(root, config, housekeeping=False)
    store.transactions.now_ms = in_an_hour
    begin_transactions(store, transactions, chosen.choice((60, 600, 1_900)))
    for _ in range(chosen.randrange(2)):
        store.transactions.check()
    counted["transactions"] += transactions
    for life in range(chosen.randrange(1, 6)):
        status = nursery.run(_order(chosen, root, directory / f"notes {life}"))
        if status not in (0, -signal.SIGKILL):
            return [f"a child ended with {status}"]
        counted["kills"] += status != 0
        end = chosen.randrange(4)
        if end < 2:  # all die; the host starts again, too
            abandon(store)
            if end == 1:
                (root / "shared").unlink()
            store = open_store(root, config, housekeeping=False)
            store.transactions.now_ms = in_an_hour
            counted["openings after all were killed"] += 1
    problems = _ending(store, transactions)
    store.close()
    return problems + [str(problem) for problem in reference.check_store(root)]


def _order(chosen: random.Random, root: Path, notes: Path) -> Order:
    order = Order(scenario=chosen.choice(("decide", "decide", "check")), root=str(root), notes=str(notes))
    if chosen.randrange(2):
        return replace(order, kill_at_line=chosen.randrange(1, _MOST_LINES))
    return replace(order, point=chosen.choice(_POINTS).name, survive=chosen.randrange(20))


def _ending(store: MessageStore, transactions: int) -> list[str]:
    """Decide what is left as the children do, and say what is wrong then."""
    problems = []
    for number, half in enumerate(first_halves(store)):
        try:
            store.transactions.decide(half, commit=number % 2 == 0)
        except TransactionDecided as error:
            if error.committed != (number % 2 == 0):
                problems.append(f"transaction {number} was decided the other way")
    bodies = [store.messages.at(QUEUE, number).body for number in range(store.topics.max_offset(QUEUE))]
    if sorted(map(number_of, bodies)) != list(range(0, transactions, 2)):
        problems.append(f"committed: {sorted(map(number_of, bodies))} of {transactions}")
    if store.topics.max_offset(OPERATION_QUEUE) != transactions:
        problems.append(f"{store.topics.max_offset(OPERATION_QUEUE)} operations for {transactions} transactions")
    if store.transactions.pending() or store.transactions.given_up():
        problems.append("something is still undecided")
    return problems


RIG = Rig("transactions", 1_000, run)
