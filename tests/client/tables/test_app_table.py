"""Tables of an application: declared when it is imported, opened where they are used, closed with the worker."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Message, Producer, Table
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import HandlerError, InvalidName, StoreClosed, StoreUnusable
from rmqclient.local.backend import store_of
from rmqclient.store import MessageStore, open_store
from rmqclient.tables.app_table import read_by_worker
from tests.client.conftest import consuming, wait_for

LONG_S = 20.0


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(tmp_path / "elsewhere")


def test_declaring_a_table_touches_no_store_and_checks_what_it_can(app: App) -> None:
    prices = app.table("prices", value_type=dict[str, float])
    assert not Path(app.root).exists()
    assert repr(prices) == "AppTable('prices', dict[str, float])"
    with pytest.raises(StoreUnusable):
        prices["AAPL"]
    with pytest.raises(HandlerError, match="value_type"):
        app.table("prices", value_type=threading.Thread)
    with pytest.raises(InvalidName):
        app.table("a b")
    with pytest.raises(HandlerError, match="no store is named"):
        len(App().table("prices"))


@pytest.mark.guarantee("G42")
def test_a_handler_looks_up_what_was_sent_before_its_message(app: App, store: MessageStore, producer: Producer) -> None:
    # Given a handler that reads a table of its application, which names another store
    prices, seen = app.table("prices", value_type=Any), []

    @app.handler("orders", group="billing")
    def bill(symbol: str) -> None:
        seen.append((symbol, prices.get(symbol)))

    # When it runs on this one
    producer.send(Message("prices", 3, keys="AAPL"))
    with consuming(store, app):
        producer.send(Message("orders", "AAPL"))
        producer.send(Message("orders", "MSFT"))
        wait_for(lambda: len(seen) == 2, "both orders")
        assert sorted(seen, key=str) == [("AAPL", 3), ("MSFT", None)]
        prices.wait_for(producer.send(Message("prices", 4, keys="MSFT")), LONG_S)
        producer.send(Message("orders", "MSFT"))
        wait_for(lambda: len(seen) == 3, "the third order")
        assert seen[2] == ("MSFT", 4)
        opened = prices.opened
        assert (dict(prices), len(prices), "AAPL" in prices) == ({"AAPL": 3, "MSFT": 4}, 2, True)
        assert sorted(prices.values()) == sorted(prices.snapshot().values()) == [3, 4]
        assert sorted(prices.items()) == [("AAPL", 3), ("MSFT", 4)]
    # Then the table was closed with the consumer, and the store of the application is the one again
    with pytest.raises(StoreClosed):
        opened["AAPL"]
    with pytest.raises(StoreUnusable):
        prices["AAPL"]


def test_without_handlers_it_opens_the_store_of_the_application(tmp_path: Path, producer: Producer) -> None:
    producer.send(Message("prices", b"3", keys="AAPL"))
    prices = App(tmp_path / "store").table("prices")
    assert prices["AAPL"] == b"3"
    assert prices.opened is prices.opened
    prices.close()
    assert prices["AAPL"] == b"3", "using it opens it again"
    prices.close()


def test_with_several_stores_it_reads_that_of_the_application(
    tmp_path: Path, store: MessageStore, producer: Producer
) -> None:
    producer.send(Message("prices", b"here", keys="AAPL"))
    with Producer(tmp_path / "other") as other:
        other.send(Message("prices", b"there", keys="AAPL"))
        here, there, neither = (App(tmp_path / name) for name in ("store", "other", "third"))
        for app in (here, there):
            app.handler("orders", group="g")(lambda _: None)
        with consuming(store, here), consuming(store_of(other._backend, "a test"), there):
            assert here.table("prices")["AAPL"] == b"here"
            assert there.table("prices")["AAPL"] == b"there"
            with pytest.raises(StoreUnusable):
                neither.table("prices")["AAPL"]


def test_a_consumer_that_is_never_closed_changes_no_other_table(tmp_path: Path, store: MessageStore) -> None:
    # Given a consumer of another store that runs on
    elsewhere = App(tmp_path / "elsewhere")
    elsewhere.handler("orders", group="g")(lambda _: None)
    with open_store(tmp_path / "elsewhere") as other, Producer(tmp_path / "elsewhere") as producer:
        producer.send(Message("prices", b"there", keys="AAPL"))
        consumer = PushConsumer(other, elsewhere.handlers, tables=elsewhere.tables)
        consumer.start()
        try:
            # Then the tables of an application read its own store, and those of that consumer's read that one
            with Producer(store) as here:
                here.send(Message("prices", b"here", keys="AAPL"))
            prices = App(store.root).table("prices")
            assert prices["AAPL"] == b"here"
            assert elsewhere.table("prices")["AAPL"] == b"there"
            prices.close()
        finally:
            consumer.stop_taking()
            consumer.drain(10)
            consumer.close()


def test_two_consumers_of_one_application_never_leave_it_open_which_store_a_table_reads(
    app: App, tmp_path: Path, store: MessageStore, producer: Producer
) -> None:
    # Given a table that is read while one consumer runs
    producer.send(Message("prices", b"here", keys="AAPL"))
    prices = app.table("prices")
    app.handler("orders", group="g")(lambda _: None)
    with consuming(store, app), open_store(tmp_path / "other") as other:
        assert prices["AAPL"] == b"here"
        # When another one runs on another store
        with consuming(other, app), pytest.raises(StoreUnusable, match="2 consumers of one application"):
            prices["AAPL"]
        # Then it is read again when that one has ended
        assert prices["AAPL"] == b"here"


def test_in_a_worker_the_tables_of_every_application_read_its_store(
    app: App, store: MessageStore, producer: Producer
) -> None:
    producer.send(Message("prices", b"3", keys="AAPL"))
    prices = app.table("prices")
    with read_by_worker(store):
        assert prices["AAPL"] == b"3"
        opened = prices.opened
    with pytest.raises(StoreClosed):
        opened["AAPL"]
    with pytest.raises(StoreUnusable):
        prices["AAPL"]


def test_threads_that_use_it_first_at_once_share_one(tmp_path: Path, producer: Producer) -> None:
    producer.send(Message("prices", b"3", keys="AAPL"))
    prices = App(tmp_path / "store").table("prices")
    found: list[Table] = []
    threads = [threading.Thread(target=lambda: found.append(prices.opened)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len({id(each) for each in found})) == (8, 1)
    prices.close()


def test_a_forked_child_opens_its_own(tmp_path: Path, producer: Producer) -> None:
    producer.send(Message("prices", b"3", keys="AAPL"))
    prices = App(tmp_path / "store").table("prices")
    assert prices["AAPL"] == b"3"
    child = os.fork()
    if child == 0:
        os._exit(7 if prices["AAPL"] == b"3" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    prices.close()
