"""Drivers that are killed at every step of a commit while others append: each row is in the log exactly once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Self

import orjson
import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from rmqclient import Message, Producer, PullConsumer, PullStatus
from rmqclient.store import MessageStore, open_store
from rmqclient.store.inspect.verify import verify
from tests.spark.sink.sink_child import TOPIC, Drivers, Order, body
from tests.support.sweeps import each_seventh

STEPS = (
    "before take_over",
    "after take_over",
    "after announce",
    "APPEND_LOCKED",
    "APPEND_ANNOUNCED",
    "RECORD_HALF_COPIED",
    "RECORDS_COPIED",
    "RECORDS_ANNOUNCED",
    "ENTRIES_WRITTEN",
    "RECORDS_PUBLISHED",
    "QUEUE_PUBLISHED",
    "APPEND_FINISHED",
    "after append_parts",
    "before conclude",
    "after conclude",
)


@pytest.fixture(scope="module")
def drivers() -> Iterator[Drivers]:
    with Drivers() as drivers:
        yield drivers


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    """A store that stays open in this process, so that no opening repairs what a killed driver left."""
    with open_store(root) as store:
        yield store


class Others:
    """A producer of this process that sends all the time, to the topic of the sink and to another one."""

    def __init__(self, store: MessageStore) -> None:
        self._producer = Producer(store)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.0005):
            self._producer.send(Message(TOPIC, b"other %d" % self.sent))
            self._producer.send(Message("elsewhere", b"other %d" % self.sent))
            self.sent += 1


@pytest.mark.guarantee("G25")
@pytest.mark.parametrize("step", each_seventh(STEPS))
def test_a_driver_killed_at_any_step_leaves_a_batch_that_its_replay_completes(
    drivers: Drivers, root: Path, store: MessageStore, step: str
) -> None:
    assert drivers.run(Order(str(root), 0)) == "done"
    assert drivers.run(Order(str(root), 1, step=step, passes=4 if step.isupper() else 0)) == "killed"
    assert drivers.run(Order(str(root), 1)) == "done"
    assert drivers.run(Order(str(root), 2)) == "done"
    check(root, batches=3)
    assert leftovers(root) == []


@pytest.mark.guarantee("G25")
@pytest.mark.sweep
def test_drivers_killed_again_and_again_beside_other_producers_write_each_row_once(
    drivers: Drivers, root: Path, store: MessageStore
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    killed = 0
    with Others(store) as others:
        for batch in range(5):
            for _ in range(chance.randrange(1, 4)):
                order = Order(str(root), batch, step=chance.choice(STEPS), passes=chance.randrange(8))
                killed += drivers.run(order) == "killed"
            assert drivers.run(Order(str(root), batch)) == "done"
    assert killed
    check(root, batches=5, others=others.sent)
    assert leftovers(root) == []
    store.close()
    assert verify(root) == []


def test_a_driver_killed_between_the_sections_of_one_run_leaves_the_rest_to_its_replay(
    drivers: Drivers, root: Path, store: MessageStore
) -> None:
    long = Order(str(root), 0, parts=1, rows=9_000)  # 2,250 for each queue, in three sections
    assert drivers.run(replace(long, step="APPEND_FINISHED", passes=4)) == "killed"
    assert drivers.run(long) == "done"
    check(root, batches=1, parts=1, rows=9_000)


def test_a_new_query_with_the_same_name_completes_what_the_lost_checkpoint_had_begun(
    drivers: Drivers, root: Path, store: MessageStore
) -> None:
    assert drivers.run(Order(str(root), 0)) == "done"
    assert drivers.run(Order(str(root), 1, step="APPEND_FINISHED", passes=2)) == "killed"
    for batch in range(3):
        assert drivers.run(Order(str(root), batch)) == "done"
    check(root, batches=3)


def test_the_rows_of_the_first_attempt_stay_when_the_replay_computes_others(
    drivers: Drivers, root: Path, store: MessageStore
) -> None:
    assert drivers.run(Order(str(root), 0, step="APPEND_FINISHED", passes=2)) == "killed"
    assert "was written with other rows" in drivers.run(Order(str(root), 0, variant="!"))
    check(root, batches=1)


def test_staged_rows_that_a_power_cut_tore_come_from_the_replay_when_it_has_the_same(
    drivers: Drivers, root: Path, store: MessageStore
) -> None:
    assert drivers.run(Order(str(root), 0, step="APPEND_FINISHED", passes=2)) == "killed"
    tear(root)
    answer = drivers.run(Order(str(root), 0, variant="!"))
    assert answer.startswith("BatchConflict: batch 0 of application 'app' for topic 'out' was cut short by a power cut")
    assert "this commit has other rows or another order" in answer
    assert "this commit has batch 1" in drivers.run(Order(str(root), 1))
    assert drivers.run(Order(str(root), 0)) == "done"
    assert drivers.run(Order(str(root), 1)) == "done"
    check(root, batches=2)


@pytest.mark.parametrize(("step", "variant"), [("after announce", "!"), ("before conclude", "")])
@pytest.mark.sweep
def test_torn_staged_rows_are_not_missed_when_none_or_all_had_landed(
    drivers: Drivers, root: Path, store: MessageStore, step: str, variant: str
) -> None:
    assert drivers.run(Order(str(root), 0, step=step)) == "killed"
    tear(root)
    assert drivers.run(Order(str(root), 0, variant=variant)) == "done"
    check(root, batches=1, variant=variant)


def test_a_batch_whose_beginning_retention_removed_is_refused_when_rows_are_missing(
    drivers: Drivers, root: Path, store: MessageStore
) -> None:
    assert drivers.run(Order(str(root), 0)) == "done"
    assert drivers.run(Order(str(root), 1, step="APPEND_FINISHED", passes=2)) == "killed"
    begin = store.state.min_offset
    store.state.min_offset = ledger_of(root)["intent"]["begin"] + 1
    answer = drivers.run(Order(str(root), 1))
    assert answer.startswith("BatchConflict: batch 1 of application 'app' for topic 'out' was cut short, and it is")
    assert "remove " in answer
    store.state.min_offset = begin
    assert drivers.run(Order(str(root), 1)) == "done"
    check(root, batches=2)


def test_rows_are_found_behind_a_damaged_record_and_the_damaged_row_is_written_again(
    drivers: Drivers, root: Path, store: MessageStore
) -> None:
    assert drivers.run(Order(str(root), 0, step="before conclude")) == "killed"
    log = next((root / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(1_000)
        before = file.read(1)[0]
        file.seek(1_000)
        file.write(bytes([before ^ 0xFF]))
    assert drivers.run(Order(str(root), 0)) == "done"
    check(root, batches=1, late=1)


def check(
    root: Path, *, batches: int, parts: int = 2, rows: int = 400, others: int = 0, late: int = 0, variant: str = ""
) -> None:
    """Each row of each part is served once, in its part's order in each queue, and what others sent, too."""
    found: Counter[bytes] = Counter()
    in_order: list[bool] = []
    with PullConsumer(root, group="look") as consumer:
        topics = (TOPIC, "elsewhere") if others else (TOPIC,)
        for queue in (queue for topic in topics for queue in consumer.queues(topic)):
            offset = 0
            orders: dict[tuple[bytes, ...], int] = {}
            while (result := consumer.pull(queue, offset, limit=1_000)).status is PullStatus.FOUND:
                offset = result.next_offset
                for message in result.messages:
                    found[message.body] += 1
                    if not message.body.startswith(b"other"):
                        *part, row = message.body.split(b" ")[0].rstrip(b"!").split(b"/")
                        in_order += [int(row) > orders.get(tuple(part), -1)]
                        orders[tuple(part)] = int(row)
    numbers = product(range(batches), range(parts), range(rows))
    expected = Counter(body(*each, variant) for each in numbers)
    sent = Counter({b"other %d" % number: 2 for number in range(others)})
    assert in_order.count(False) == late
    assert found - (expected + sent) == Counter()
    assert (expected + sent) - found == Counter()


def ledger_of(root: Path) -> dict[str, dict[str, int]]:
    return dict(orjson.loads((root / "spark/app/topics/out/ledger.json").read_bytes()))


def leftovers(root: Path) -> list[str]:
    """Return what lies in the sink's directories and should not be there after a commit."""
    kept = {"ledger.json", "lock"}
    staged = (root / "spark/.staging").iterdir()
    return [
        *(path.name for path in (root / "spark/app/topics/out").iterdir() if path.name not in kept),
        *map(str, staged),
    ]


def tear(root: Path) -> None:
    for path in (root / "spark/app/topics/out").glob("batch-*/*"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
