"""Any history of transactions, on a real store, against a model of a few lines."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rmqclient.store import Message, MessageStore, ReceivedMessage, open_store
from rmqclient.store.config import TransactionConfig
from rmqclient.store.errors import TransactionDecided
from rmqclient.store.waiting.half_messages import checks_of
from tests.support.oracle import reference
from tests.support.stores import QUEUE, SMALL, TOPIC, abandon, appender_of
from tests.support.sweeps import share_of

CONFIG = replace(SMALL, transactions=TransactionConfig(check_max=2))
MEMORY = Path("/dev/shm")


@dataclass
class Modelled:
    """What a transaction should be."""

    half: ReceivedMessage
    """As the producer has it, however often it was renewed since."""
    checks: int = 0
    given_up: bool = False
    committed: bool | None = None


class Transactions(RuleBasedStateMachine):
    """Two processes' handles of one store, and what must be seen in it."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.model: list[Modelled] = []
        self.visible: list[bytes] = []
        self.stores: list[MessageStore] = []

    @initialize()
    def start(self) -> None:
        self.stores = [open_store(self.directory / "store", CONFIG, housekeeping=False) for _ in range(2)]
        for store in self.stores:
            store.transactions.now_ms = lambda: time.time_ns() // 1_000_000 + 3_600_000
        self.stores[0].topics.create(TOPIC, 1)

    @rule(process=st.integers(0, 1))
    def begin(self, process: int) -> None:
        store, body = self.stores[process], b"%d" % len(self.model)
        sent = appender_of(store).append_half(Message(TOPIC, body), "producers")
        self.model.append(Modelled(store.messages.read(sent.commit_log_offset)))

    @rule(process=st.integers(0, 1), which=st.integers(0, 99), commit=st.booleans())
    @precondition(lambda self: self.model)
    def decide(self, process: int, which: int, commit: bool) -> None:
        chosen = self.model[which % len(self.model)]
        try:
            self.stores[process].transactions.decide(chosen.half, commit=commit)
        except TransactionDecided as error:
            assert error.committed is chosen.committed
        else:
            assert chosen.committed is None
            chosen.committed = commit
            if commit:
                self.visible.append(chosen.half.body)

    @rule(process=st.integers(0, 1))
    def check(self, process: int) -> None:
        self.stores[process].transactions.check()
        for each in self.model:
            if each.committed is None and not each.given_up:
                each.given_up = each.checks >= CONFIG.transactions.check_max
                each.checks += not each.given_up

    @rule(process=st.integers(0, 1))
    def send_plainly(self, process: int) -> None:
        self.visible.append(b"plain")
        appender_of(self.stores[process]).append(Message(TOPIC, b"plain"))

    @rule()
    def everybody_dies(self) -> None:
        for store in self.stores:
            abandon(store)
        self.start()

    @rule(told=st.booleans())
    def the_host_is_started_again(self, told: bool) -> None:
        if told:
            self.stores[0].offsets.persist()
        for store in self.stores:
            abandon(store)
        (self.directory / "store" / "shared").unlink()
        self.start()

    @rule()
    def everybody_leaves(self) -> None:
        for store in self.stores:
            store.close()
        assert reference.check_store(self.directory / "store") == []
        self.start()

    @invariant()
    def what_is_seen_is_what_was_committed(self) -> None:
        for store in self.stores:
            seen = [store.messages.at(QUEUE, number).body for number in range(store.topics.max_offset(QUEUE))]
            assert seen == self.visible

    @invariant()
    def what_is_open_is_what_nobody_decided(self) -> None:
        for store in self.stores:
            undecided = [each for each in self.model if each.committed is None]
            pending = {half.message_id: checks_of(half) for half in store.transactions.pending()}
            assert pending == {each.half.message_id: each.checks for each in undecided if not each.given_up}
            given_up = [copy.message_id for copy in store.transactions.given_up()]
            assert sorted(given_up) == sorted(each.half.message_id for each in undecided if each.given_up)

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.directory)


Transactions.TestCase.settings = settings(max_examples=share_of(15), stateful_step_count=20, deadline=None)


@pytest.mark.guarantee("G31")
@pytest.mark.guarantee("G32")
class TestAnyHistory(Transactions.TestCase):  # type: ignore[misc,valid-type]
    """Found by hypothesis."""
