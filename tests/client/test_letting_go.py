"""What is closed and given up: mappings and descriptors go with the last reference, at once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rmqclient import Decision, Message, Producer, PullConsumer, StoreConfig, TransactionProducer
from rmqclient.errors import RequestTimeout, StoreClosed
from rmqclient.store import open_store


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """No garbage is collected meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


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


def held(root: Path) -> list[str]:
    """Return what this process has mapped or open in a directory."""
    mapped = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    opened = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return [each for each in (*mapped, *opened) if each.startswith(str(root))]


@pytest.mark.parametrize("used", [store, sender, traced, requester, checker, reader])
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
