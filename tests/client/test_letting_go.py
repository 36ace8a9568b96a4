"""What is closed and given up: mappings and descriptors go with the last reference, at once."""

from __future__ import annotations

import contextlib
import gc
import logging
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmqclient import (
    App,
    Batch,
    Decision,
    Message,
    Outbox,
    Producer,
    PullConsumer,
    ReceivedMessage,
    Relay,
    StoreConfig,
    Table,
    TransactionProducer,
)
from rmqclient.admin import Admin
from rmqclient.errors import RequestTimeout, StoreClosed
from rmqclient.store import open_store


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """No garbage is collected meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def without_log_lines() -> Iterator[None]:
    """Nothing that pytest keeps of a log line has the frames of a traceback."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def store(root: Path) -> None:
    open_store(root, StoreConfig.small()).close()


def sender(root: Path) -> None:
    with Producer(root, config=StoreConfig.small(), write_buffer_bytes=1 << 16) as producer:
        producer.send("orders", b"now", delay=1)
        producer.send_once("orders", b"once", key="k")
        producer.send_async("orders", b"later").result(20)
        producer.send_buffered(Message("orders", b"buffered"))


def traced(root: Path) -> None:
    with Producer(root, config=StoreConfig.small(), message_trace=True) as producer:
        producer.send("orders", b"")


def requester(root: Path) -> None:
    with Producer(root, config=StoreConfig.small()) as producer, suppress(RequestTimeout):
        producer.request("orders", b"", timeout=0.05)


def checker(root: Path) -> None:
    def check(_: object) -> Decision:
        return Decision.COMMIT

    with TransactionProducer(root, group="shop", check=check, config=StoreConfig.small()) as producer:
        producer.transaction(Message("orders", b"")).leave()


def reader(root: Path) -> None:
    sender(root)
    with PullConsumer(root, group="readers") as consumer:
        assert len(list(consumer.messages("orders", wait=0))) >= 3


def relay(root: Path) -> None:
    outbox, file = Outbox(), root / "shop.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        outbox.create(connection)
        with connection:
            connection.execute("SELECT 1")
            connection.execute("BEGIN")
            outbox.add(connection, Message("orders", b""))
    store(root / "store")
    with Relay(root / "store", outbox, lambda: sqlite3.connect(file)) as sending:
        assert sending.send() == 1


def table(root: Path) -> None:
    sender(root)
    with Table(root, "prices") as prices:
        assert dict(prices) == {}


def administrator(root: Path) -> None:
    sender(root)
    with Admin(root) as admin:
        admin.topics()
        admin.groups()


def held(root: Path) -> list[str]:
    """Return what this process has mapped or open in a directory."""
    mapped = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    opened = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return [each for each in (*mapped, *opened) if each.startswith(str(root))]


@pytest.mark.parametrize("used", [store, sender, traced, requester, checker, reader, relay, table, administrator])
def test_nothing_of_a_closed_store_is_held_by_a_circle(tmp_path: Path, used: Callable[[Path], None]) -> None:
    used(tmp_path)
    assert held(tmp_path) == []


def test_parts_that_somebody_still_has_say_that_the_store_was_closed(tmp_path: Path) -> None:
    with open_store(tmp_path, StoreConfig.small()) as opened:
        timer, once = opened.timer, opened.once
    del opened
    with pytest.raises(StoreClosed):
        timer._find("0" * 32, "orders")
    with pytest.raises(StoreClosed):
        once._settle()


@pytest.mark.parametrize(
    "options", [{}, {"order": "queue"}, {"order": "key"}, {"batch": Batch(2)}, {"broadcast": True}]
)
@pytest.mark.parametrize("fails", [False, True], ids=["returning", "raising"])
@pytest.mark.usefixtures("without_log_lines")
def test_a_stopped_consumer_goes_with_its_last_reference(tmp_path: Path, options: dict[str, Any], fails: bool) -> None:
    # Given an application with two handlers of a group, so that they share its retry topic, and a coroutine
    called = threading.Semaphore(0)

    def handle(_: Any) -> None:
        called.release()
        if fails:
            raise ValueError("no")

    async def wait(_: ReceivedMessage) -> None:
        called.release()

    app = App(tmp_path, config=StoreConfig.small())
    app.handler("orders", group="shop", **options)(handle)
    app.handler("bills", group="shop", **options)(handle)
    app.handler("orders", group="mail")(wait)
    app.schedule("0 0 1 1 *", topic="bills", name="new-year")(lambda: b"")
    consumer = app.start(member_name="one")
    with app.producer() as producer:
        producer.send("orders", b"")
        producer.send("bills", b"")
    del producer
    for _ in range(3):
        assert called.acquire(timeout=20)

    # When it has stopped, and nobody has it any more
    parts = [consumer, *consumer.subscriptions, *(each.delivery for each in consumer.subscriptions)]
    gone = [weakref.ref(each) for each in parts]
    consumer.stop()
    del consumer, parts

    # Then nothing of it is left, and the collector has nothing to do
    assert [each() for each in gone] == [None] * len(gone)
    assert held(tmp_path) == []
