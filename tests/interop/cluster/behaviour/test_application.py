"""The command ``rmq run`` with one application file, unchanged, at every place."""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from rmqclient import Message, Producer
from tests.interop.cluster.behaviour.place import LONG_S, Place, eventually
from tests.interop.cluster.workers import Workers, start_workers

SHOP = Path(__file__).with_name("shop.py")
TOPICS = ("Orders", "Steps", "Hard", "News", "Questions", "Ticks")


@dataclass(slots=True)
class Shop:
    """``rmq run`` of the application, with two workers, and what its handlers have written down."""

    workers: Workers
    record_path: Path

    def records(self, handler: str) -> list[dict[str, Any]]:
        """Return what a handler was called with, in the order of the calls."""
        if not self.record_path.exists():
            return []
        lines = [orjson.loads(line) for line in self.record_path.read_bytes().splitlines()]
        return [line for line in lines if line["handler"] == handler]

    def bodies(self, handler: str) -> list[str]:
        """Return the bodies that a handler was called with, sorted."""
        return sorted(line["body"] for line in self.records(handler))


@contextmanager
def running_shop(place: Place, directory: Path) -> Iterator[Shop]:
    """Run the shop until the block ends; then it has to shut down by itself."""
    record = directory / "record.jsonl"
    workers = start_workers(
        SHOP,
        place.address,
        directory / "log",
        *("--processes", "2", "--member-name", f"m{place.mark}"),
        environment={"SHOP_MARK": place.mark, "SHOP_RECORD": str(record)},
    )
    try:
        workers.ready(2)
        yield Shop(workers, record)
        assert workers.stop() == 0
    except BaseException:
        print(workers.log[-6000:])
        raise
    finally:
        workers.kill()


def test_one_application_file_does_the_same_at_every_place(place: Place, tmp_path: Path) -> None:
    orders, steps, hard, news, questions, _ = (place.topic(stem) for stem in TOPICS)
    with running_shop(place, tmp_path) as shop, Producer(place.address, group=place.name("shop")) as producer:
        for number in range(40):
            body = b'{"number": %d, "items": %d}' % (number, number % 10)
            tags = ("paid", "open", "refunded", None)[number % 4]
            producer.send(Message(orders, body, tags=tags, properties={"total": str(number)}))
        for number in range(40):
            producer.send(Message(steps, b"%d" % number), f"key {number % 8}")
        for tries in (1, 2, 3, 9):
            producer.send(Message(hard, b"%d" % tries))
        producer.send(Message(news, b"news"))
        assert producer.request(Message(questions, b"really?"), LONG_S).body == b"REALLY?"
        expected = {"bill": 20, "cheap": 10, "large": 16, "lists": 40, "trying": 9, "news": 2}
        for handler, count in expected.items():
            eventually(lambda: len(shop.records(handler)) >= count, f"{count} calls of {handler}")  # noqa: B023
        eventually(lambda: len(shop.records("steps")) >= 48, "every step")
        eventually(lambda: len(shop.records("by_key")) >= 44, "every step by key")
        eventually(lambda: len(shop.records("ticked")) >= 2, "ticks")
        eventually(lambda: len(place.stored_if_known(f"%DLQ%{place.name('trying')}")) == 1, "the dead letter")

    assert {handler: len(shop.records(handler)) for handler in expected} == expected
    assert Counter(shop.bodies("trying")) == {"1": 1, "2": 2, "3": 3, "9": 3}
    assert len({line["pid"] for line in shop.records("news")}) == 2
    _check_order(shop.records("steps"), "queue", lambda body: 3 if body.endswith("7") else 1)
    _check_order(shop.records("by_key"), "key", lambda body: 2 if body.endswith("5") else 1)


def _check_order(lines: list[dict[str, Any]], by: str, attempts: Callable[[str], int]) -> None:
    """Each queue, or each key, has its messages in order, a failed one as often as it was tried."""
    calls: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in lines:
        calls[str(line[by])].append((line["offset"], line["attempt"]))
    tried = {(str(line[by]), line["offset"]): attempts(line["body"]) for line in lines}
    assert tried
    for name, made in calls.items():
        offsets = sorted({offset for offset, _ in made})
        assert made == [(offset, attempt) for offset in offsets for attempt in range(1, tried[name, offset] + 1)]


def test_a_worker_that_is_killed_is_replaced_and_nothing_is_lost(place: Place, tmp_path: Path) -> None:
    orders, *_ = (place.topic(stem) for stem in TOPICS)
    with running_shop(place, tmp_path) as shop, Producer(place.address) as producer:
        for number in range(30):
            producer.send(Message(orders, b"%d" % number, tags="paid"))
        eventually(lambda: len(shop.records("bill")) >= 10, "some calls")
        os.kill(shop.workers.ready(2)[1], signal.SIGKILL)
        for number in range(30, 60):
            producer.send(Message(orders, b"%d" % number, tags="paid"))
        shop.workers.ready(3)
        eventually(lambda: len(set(shop.bodies("bill"))) == 60, "every message at least once")
