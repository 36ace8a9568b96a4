"""Transactions as an application writes them: what is sent when, and who is asked about what was left undecided."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rmqclient import (
    App,
    Decision,
    Durability,
    Message,
    Producer,
    ReceivedMessage,
    StoreConfig,
    TransactionProducer,
)
from rmqclient.admin import Admin
from rmqclient.errors import HandlerError, InvalidName, StoreClosed, TransactionDecided
from rmqclient.health.findings import CRITICAL, Finding, look
from rmqclient.health.limits import Limits
from rmqclient.local import transactions as local_transactions
from rmqclient.local.backend import store_of
from rmqclient.store import HALF_TOPIC, OPERATION_TOPIC, MessageQueue, MessageStore, open_store
from rmqclient.store.config import TransactionConfig
from rmqclient.store.observe.reading import Reading
from rmqclient.store.waiting.transaction_log import GROUP as TRANSACTION_GROUP
from tests.client.conftest import consuming, wait_for

CONFIG = StoreConfig(
    transactions=TransactionConfig(timeout_ms=1, check_interval_ms=50, check_max=1_000), default_queue_count=1
)
QUEUE = MessageQueue("orders", 0)
CHECKS = 3


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store whose housekeeper, in this process, checks soon and often."""
    with open_store(tmp_path / "store", CONFIG) as opened:
        opened.topics.create("orders", 1)
        yield opened


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[MessageStore]:
    """A store without a housekeeper: nothing is checked but by the test, and three times at most."""
    config = replace(CONFIG, transactions=replace(CONFIG.transactions, check_max=CHECKS))
    with open_store(tmp_path / "quiet", config, housekeeping=False) as opened:
        opened.topics.create("orders", 1)
        yield opened


def bodies(store: MessageStore) -> list[bytes]:
    return [store.messages.at(QUEUE, number).body for number in range(store.topics.max_offset(QUEUE))]


def is_decided(store: MessageStore) -> bool:
    return not store.transactions.pending()


# --- with -----------------------------------------------------------------------------------------


@pytest.mark.guarantee("G31")
def test_a_handler_gets_what_was_committed_and_nothing_else(store: MessageStore) -> None:
    app, handled = App(store.root), list[bytes]()

    @app.handler("orders", group="billing")
    def handle(message: ReceivedMessage) -> None:
        handled.append(message.body)

    with consuming(store, app), TransactionProducer(store, group="shop") as producer:
        with producer.transaction(Message("orders", b"left")) as tx:
            tx.leave()
        with pytest.raises(KeyError), producer.transaction(Message("orders", b"failed")):
            raise KeyError("no stock")
        with producer.transaction(Message("orders", b"rolled back")) as tx:
            tx.rollback()
        with producer.transaction(Message("orders", b"committed")) as tx:
            assert bodies(store) == []
        with producer.transaction(Message("orders", b"committed early")) as tx:
            sent = tx.commit()
            assert sent is not None
            assert sent.message_id == tx.message_id
            assert tx.commit() is None
        producer.send(Message("orders", b"plain"))
        wait_for(lambda: len(handled) >= 3, "everything is handled")
    assert handled == [b"committed", b"committed early", b"plain"]


def test_a_transaction_that_was_decided_elsewhere_says_so(quiet: MessageStore) -> None:
    with TransactionProducer(quiet, group="shop") as producer:
        begun = [producer.transaction(Message("orders", b"%d" % number)) for number in range(2)]
        for half, commit in zip(quiet.transactions.pending(), (True, False), strict=True):
            quiet.transactions.decide(half, commit=commit)
        assert begun[0].commit() is None
        assert begun[0].decision is Decision.COMMIT
        with pytest.raises(TransactionDecided, match="rolled back already"):
            begun[1].commit()
        assert begun[1].decision is Decision.ROLLBACK
        with pytest.raises(TransactionDecided, match="committed already"):
            begun[0].rollback()
    assert bodies(quiet) == [b"0"]


@pytest.mark.guarantee("G31")
def test_with_sync_durability_half_message_and_decision_are_on_the_disk(tmp_path: Path) -> None:
    config = StoreConfig(durability=Durability.SYNC)
    with TransactionProducer(tmp_path, group="shop", config=config) as producer:
        store = store_of(producer._backend, "a test")
        with producer.transaction(Message("orders", b"a")) as tx:
            assert store.state.flushed_to == store.state.published_to
        assert tx.decision is Decision.COMMIT
        assert store.state.flushed_to == store.state.published_to


@pytest.mark.guarantee("G31")
def test_with_sync_durability_a_decision_that_another_one_has_just_made_is_on_the_disk_too(tmp_path: Path) -> None:
    config = StoreConfig(durability=Durability.SYNC)
    with TransactionProducer(tmp_path, group="shop", config=config) as producer:
        store = store_of(producer._backend, "a test")
        begun = producer.transaction(Message("orders", b"a"))
        (half,) = store.transactions.pending()
        decided = store.transactions.decide(half, commit=True)
        assert store.state.flushed_to < decided.commit_log_end, "the other one still waits for its flush"
        assert begun.commit() is None
        assert store.state.flushed_to >= decided.commit_log_end


def test_the_topics_of_transactions_are_nobodys(quiet: MessageStore) -> None:
    with TransactionProducer(quiet, group="shop") as producer:
        for topic in (HALF_TOPIC, OPERATION_TOPIC):
            with pytest.raises(InvalidName, match="holds undecided transactions"):
                producer.create_topic(topic, 1)
            with pytest.raises(InvalidName, match="holds undecided transactions"):
                App(quiet.root).handler(topic, group="g")
            with pytest.raises(InvalidName):
                producer.transaction(Message("no such name!", b""))
        with pytest.raises(InvalidName, match="how far transactions are"):
            Admin(quiet).seek(TRANSACTION_GROUP, HALF_TOPIC, "earliest")
        with pytest.raises(ValueError, match=r"immunity=.*must be at least 0 s"):
            producer.transaction(Message("orders", b""), immunity=timedelta(seconds=-1))


def test_messages_of_one_sharding_key_go_to_one_queue(quiet: MessageStore) -> None:
    with TransactionProducer(quiet, group="shop") as producer:
        producer.create_topic("many", 8)
        plain = producer.send(Message("many", b""), "key")
        for _ in range(3):
            begun = producer.transaction(Message("many", b""), "key")
            sent = begun.commit()
            assert sent is not None
            assert sent.queue == plain.queue


def test_a_closed_producer_and_one_of_another_process_refuse(quiet: MessageStore) -> None:
    producer = TransactionProducer(quiet, group="shop", check=lambda _: Decision.UNKNOWN)
    begun = producer.transaction(Message("orders", b""))
    child = os.fork()
    if child == 0:
        try:
            refused = 0
            for use in (begun.commit, lambda: producer.transaction(Message("orders", b""))):
                try:
                    use()
                except StoreClosed:
                    refused += 1
            producer.close()
        finally:
            os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    producer.close()
    producer.close()
    with pytest.raises(StoreClosed):
        producer.transaction(Message("orders", b""))


# --- execute and check ----------------------------------------------------------------------------


@pytest.mark.guarantee("G31")
def test_what_execute_returns_is_done(quiet: MessageStore) -> None:
    def execute(message: Message, argument: object) -> Decision:
        if argument is None:
            raise KeyError(message.body)
        assert isinstance(argument, Decision)
        return argument

    with TransactionProducer(quiet, group="shop", execute=execute) as producer:
        for decision in Decision:
            result = producer.send_in_transaction(Message("orders", decision.value.encode()), decision)
            assert (result.decision, result.sent is not None) == (decision, decision is Decision.COMMIT)
        with pytest.raises(KeyError):  # its work may be done: that is for check
            producer.send_in_transaction(Message("orders", b"raised"))
    assert bodies(quiet) == [b"commit"]
    assert [half.body for half in quiet.transactions.pending()] == [b"unknown", b"raised"]


def test_an_execute_that_is_missing_or_says_nothing_is_told(quiet: MessageStore) -> None:
    with (
        TransactionProducer(quiet, group="shop") as none,
        TransactionProducer(quiet, group="shop", execute=lambda *_: True) as wrong,  # type: ignore[arg-type]
    ):
        with pytest.raises(HandlerError, match="has no execute"):
            none.send_in_transaction(Message("orders", b""))
        with pytest.raises(HandlerError, match="returned True"):
            wrong.send_in_transaction(Message("orders", b""))
    assert bodies(quiet) == []


@pytest.mark.guarantee("G32")
def test_check_is_asked_with_the_message_as_its_handlers_would_get_it(store: MessageStore) -> None:
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> Decision:
        asked.append(message)
        return Decision.COMMIT if message.body == b"done" else Decision.ROLLBACK

    with TransactionProducer(store, group="shop", check=check) as producer:
        begun = [
            producer.transaction(Message("orders", body, tags="t", keys="k", properties={"a": "b"}))
            for body in (b"done", b"not done")
        ]
        wait_for(lambda: len(asked) == 2 and is_decided(store), "both are decided")
    assert {(each.topic, each.body, each.tags, each.keys, each.message_id) for each in asked} == {
        ("orders", body, "t", ("k",), each.message_id) for body, each in zip((b"done", b"not done"), begun, strict=True)
    }
    assert asked[0].properties["a"] == "b"
    assert bodies(store) == [b"done"]


@pytest.mark.guarantee("G32")
def test_one_that_check_does_not_know_is_asked_about_again_and_then_given_up(quiet: MessageStore) -> None:
    answers = iter([Decision.UNKNOWN, KeyError("no database"), "commit"])
    asked = threading.Semaphore(0)

    def check(_: ReceivedMessage) -> Decision:
        asked.release()
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    quiet.transactions.now_ms = lambda: time.time_ns() // 1_000_000 + 60_000
    with TransactionProducer(quiet, group="shop", check=check) as producer:
        producer.transaction(Message("orders", b"a"))
        for _ in range(CHECKS):
            quiet.transactions.check()
            assert asked.acquire(timeout=20)
        quiet.transactions.check()
        assert [each.body for each in quiet.transactions.given_up()] == [b"a"]
    assert bodies(quiet) == []
    assert not asked.acquire(blocking=False)


@pytest.mark.guarantee("G32")
@pytest.mark.parametrize("kind", [KeyError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_whatever_a_check_raises_for_one_the_others_are_asked_about(
    quiet: MessageStore, kind: type[BaseException]
) -> None:
    # Given two that are undecided, and a check that raises for the first one
    def check(half: ReceivedMessage) -> Decision:
        if half.body == b"first":
            raise kind
        return Decision.COMMIT

    quiet.transactions.now_ms = lambda: time.time_ns() // 1_000_000 + 60_000
    with TransactionProducer(quiet, group="shop", check=check) as producer:
        for body in (b"first", b"second"):
            producer.transaction(Message("orders", body))

        # When the producers are asked, Then the second one is committed
        quiet.transactions.check()
        wait_for(lambda: bodies(quiet) == [b"second"], "the second one is decided")


@pytest.mark.guarantee("G32")
def test_a_check_that_hangs_holds_neither_the_others_nor_the_end_and_is_named(
    quiet: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given two that are undecided, and a check that hangs for the first one
    monkeypatch.setattr(local_transactions, "_HANGS_AFTER_S", 0.2)
    hangs, goes_on = threading.Event(), threading.Event()

    def check(half: ReceivedMessage) -> Decision:
        if half.body == b"first":
            hangs.set()
            goes_on.wait()
        return Decision.COMMIT

    def named() -> list[Finding]:
        found = look(Reading(str(quiet.root)), Limits(message_age_s=0.5))
        return [each for each in found if (each.check, each.subject, each.level) == ("tx", "shop", CRITICAL)]

    quiet.transactions.now_ms = lambda: time.time_ns() // 1_000_000 + 60_000
    with TransactionProducer(quiet, group="shop", check=check) as producer:
        for body in (b"first", b"second"):
            producer.transaction(Message("orders", body))

        # When the producers are asked, Then the second one is committed
        quiet.transactions.check()
        wait_for(lambda: bodies(quiet) == [b"second"], "the second one is decided")
        assert hangs.is_set()

        # And `rmq check` names the process for as long as the first one hangs
        wait_for(lambda: bool(named()), "the one that hangs is a finding")
        assert str(os.getpid()) in named()[0].state
        goes_on.set()
        wait_for(lambda: bodies(quiet) == [b"second", b"first"] and not named(), "the first one is decided")

        # And one that hangs at the end is left
        goes_on.clear()
        hangs.clear()
        producer.transaction(Message("orders", b"first"))
        quiet.transactions.check()
        assert hangs.wait(30)
    goes_on.set()


@pytest.mark.guarantee("G32")
def test_only_producers_of_the_group_are_asked_each_at_its_share(store: MessageStore) -> None:
    asked: dict[str, list[bytes]] = {"a": [], "b": [], "other": []}

    def producer(name: str, group: str) -> TransactionProducer:
        def check(message: ReceivedMessage) -> Decision:
            asked[name].append(message.body)
            return Decision.COMMIT

        return TransactionProducer(store, group=group, check=check, client_id=name)

    with producer("a", "shop") as first, producer("b", "shop"), producer("other", "other"):
        for number in range(20):
            first.transaction(Message("orders", b"%d" % number)).leave()
        wait_for(lambda: len(bodies(store)) == 20, "all are committed")
        assert {"shop", "other"}.isdisjoint(info.group for info in Admin(store).groups())  # they consume nothing
    assert asked["other"] == []
    assert len(asked["a"]) > 3
    assert len(asked["b"]) > 3
    assert {*asked["a"], *asked["b"]} == {*bodies(store)}


@pytest.mark.guarantee("G32")
def test_nobody_is_asked_before_the_time_that_the_sender_asked_for(store: MessageStore) -> None:
    asked: list[float] = []

    def check(_: ReceivedMessage) -> Decision:
        asked.append(time.monotonic())
        return Decision.COMMIT

    with TransactionProducer(store, group="shop", check=check) as producer:
        began = time.monotonic()
        producer.transaction(Message("orders", b"a"), immunity=timedelta(seconds=0.5))  # a whole one
        wait_for(lambda: bodies(store) == [b"a"], "it is committed")
    assert asked[0] - began >= 0.99


def test_a_producer_that_starts_answers_for_what_others_left_before(quiet: MessageStore) -> None:
    with TransactionProducer(quiet, group="shop") as gone:
        gone.transaction(Message("orders", b"a")).leave()
    quiet.transactions.now_ms = lambda: time.time_ns() // 1_000_000 + 60_000
    quiet.transactions.check()
    with Producer(quiet), TransactionProducer(quiet, group="shop", check=lambda _: Decision.COMMIT):
        wait_for(lambda: bodies(quiet) == [b"a"], "it is committed")
