"""Children that decide transactions and check undecided ones."""

from __future__ import annotations

import logging
from dataclasses import replace

from rmqclient.store import open_store
from rmqclient.store.config import TransactionConfig
from rmqclient.store.errors import TransactionDecided
from tests.crash.processes.order import Note, Order
from tests.support.stores import SMALL, first_halves, in_an_hour


def decide(order: Order, note: Note) -> None:
    """Commit every second transaction and roll the others back, by their first half messages; note each."""
    store = open_store(order.root, housekeeping=False)
    halves = first_halves(store)
    order.arm()
    for number, half in enumerate(halves):
        try:
            store.transactions.decide(half, commit=number % 2 == 0)
        except TransactionDecided as error:
            assert error.committed == (number % 2 == 0)
        note(number)


def check(order: Order, note: Note) -> None:
    """Run round after round of checks until every transaction is given up; note each round."""
    logging.getLogger("rmqclient.store").setLevel(
        logging.CRITICAL
    )  # what is given up is reported, and this is meant to be
    store = open_store(order.root, replace(SMALL, transactions=TransactionConfig(check_max=CHECKS)), housekeeping=False)
    store.transactions.now_ms = in_an_hour
    order.arm()
    while store.transactions.pending():
        store.transactions.check()
        note("round")


CHECKS = 3
