"""A store of some files, ways in which it was left, and what the next opening must make of it once files are damaged.

What was written is read once, with the reference codec, before anything happens. All expectations are made from that.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from rmqclient.store import Message, MessageQueue, MessageStore, TagSet, open_store
from rmqclient.store.inspect import verify
from rmqclient.store.repair import planned
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.stores import abandon
from tests.support.written import (
    ORDERS,
    PAYMENTS,
    SMALL,
    acknowledge,
    appender_of,
    copy_as_of_a_broker,
    copy_of_files,
    copy_with_runtime_file,
    fill,
    message,
)

FILE_BYTES = SMALL.commit_log_file_bytes
QUEUE_FILE_BYTES = SMALL.consume_queue_file_bytes
PAGE = 4_096
MESSAGES = 330
"""Five files of the log, and four of the consume queue of orders."""

QUEUES = [MessageQueue(ORDERS, 0), MessageQueue(PAYMENTS, 0), MessageQueue(PAYMENTS, 1)]

Written = list[tuple[int, ReferenceRecord]]
Way = Callable[[Path, Path], Path]


def closed_store(root: Path) -> Path:
    """Write a store and close it; a group has finished some orders."""
    with open_store(root, SMALL, housekeeping=False) as store:
        fill(store, MESSAGES)
        acknowledge(store, [*range(20), 25, 26])
    return root


def killed_store(root: Path) -> Path:
    """Write a store and die; the first half is below the durable mark."""
    store = open_store(root, SMALL, housekeeping=False)
    fill(store, MESSAGES // 2)
    store.flusher.flush_thorough()
    appender = appender_of(store)
    for number in range(MESSAGES // 2, MESSAGES):
        appender.append(message(number))
    acknowledge(store, [*range(20), 25, 26])
    abandon(store)
    return root


WAYS: dict[str, Way] = {
    "closed": copy_with_runtime_file,
    "copied": copy_of_files,
    "of a broker": copy_as_of_a_broker,
}
"""Ways in which a closed store is found."""


def log_path(root: Path, base: int) -> Path:
    return root / "commitlog" / f"{base:020d}"


def queue_path(root: Path, queue: MessageQueue, number: int) -> Path:
    return root / "consumequeue" / queue.topic / str(queue.queue_id) / f"{number * QUEUE_FILE_BYTES:020d}"


def bases_of(written: Written) -> list[int]:
    return sorted({offset // FILE_BYTES * FILE_BYTES for offset, _ in written})


def place(files: Sequence[int], which: str) -> int:
    """Return the first, the middle or the last one."""
    return {"first": files[0], "middle": files[len(files) // 2], "last": files[-1]}[which]


# --- what must come of it ---------------------------------------------------------------------------


@dataclass(kw_only=True)
class Expected:
    """What the next opening finds, and what it says and does about it."""

    written: Written
    lost: set[int] = field(default_factory=set)
    """Commit log offsets of records that are neither served, nor there."""
    forgotten: set[int] = field(default_factory=set)
    """Those of them that nobody can miss: they were cut off, or stood before the log's present begin."""
    quarantined: list[tuple[int, int]] = field(default_factory=list)
    renumbered: bool = False
    """Whether the queue offsets of the forgotten ones at the end are given again."""
    places_are_known: bool = True
    """Whether the entries of lost records still say where these stood."""
    cut: bool = False
    put_away: list[str] = field(default_factory=list)
    """Names in the directory of quarantined files."""
    plan: list[str] = field(default_factory=list)
    """Pieces of lines that are in the plan besides."""
    problems: set[int] = field(default_factory=set)
    """Invariants that do not hold afterwards either, because what is lost stays lost."""

    def served(self, queue: MessageQueue) -> list[tuple[int, bytes]]:
        return [(record.queue_offset, record.body) for offset, record in self._of(queue) if offset not in self.lost]

    def stepped_over(self, queue: MessageQueue) -> list[tuple[int, int]]:
        lost = self.lost - self.forgotten
        return [(record.queue_offset, offset) for offset, record in self._of(queue) if offset in lost]

    def next_offset(self, queue: MessageQueue) -> int:
        given_again = self.forgotten if self.renumbered else set()
        return max(record.queue_offset + 1 for offset, record in self._of(queue) if offset not in given_again)

    def _of(self, queue: MessageQueue) -> Written:
        return [
            (offset, record)
            for offset, record in self.written
            if (record.topic, record.queue_id) == (queue.topic, queue.queue_id)
        ]


def check(root: Path, expected: Expected) -> None:
    """Look at the plan, open the store, look at all that it serves, append, and open it again."""
    before = snapshot(root)
    plan = planned(root)
    assert snapshot(root) == before, "a dry run changed something"
    check_plan(plan, expected)
    with errors() as said, open_store(root, housekeeping=False) as store:
        check_served(store, expected)
        check_appends_go_on(store, expected)
    for start, end in expected.quarantined:
        assert any(f"bytes {start} to {end} of the commit log" in line for line in said), said
    check_files(root, expected)
    assert {problem.invariant for problem in verify.verify(root)} == expected.problems
    with open_store(root, housekeeping=False) as store:
        check_served(store, expected, "second", appended=1)
    check_files(root, expected)


def check_plan(plan: list[str], expected: Expected) -> None:
    quarantined = [line for line in plan if line.startswith("quarantine")]
    assert [line.split(":")[0] for line in quarantined] == [
        f"quarantine bytes {start} to {end}" for start, end in expected.quarantined
    ], plan
    assert any(line.startswith("cut at") for line in plan) == expected.cut, plan
    assert len([line for line in plan if "no record leads" in line]) == len(
        [name for name in expected.put_away if name.endswith(".0")]
    ), plan
    for piece in expected.plan:
        assert any(piece in line for line in plan), plan


def check_served(store: MessageStore, expected: Expected, group: str = "first", *, appended: int = 0) -> None:
    for queue in QUEUES:
        served, stepped_over = deliveries(store, queue, group)
        after = [(expected.next_offset(queue) + number, b"after") for number in range(appended)]
        assert served == expected.served(queue) + after, queue
        if expected.places_are_known:
            assert stepped_over == expected.stepped_over(queue), queue
        else:
            assert [number for number, _ in stepped_over] == [number for number, _ in expected.stepped_over(queue)], (
                queue
            )


def check_appends_go_on(store: MessageStore, expected: Expected) -> None:
    appender = store.appenders.make(store.topics.queues, lambda body: bytes(str(body), "utf-8"))
    left = {queue: expected.next_offset(queue) for queue in QUEUES}
    while left:
        topic = next(iter(left)).topic
        result = appender.append(Message(topic, b"after"))
        if (number := left.pop(result.queue, None)) is not None:
            assert result.queue_offset == number, result.queue
        else:
            raise AssertionError(f"{result.queue} took two of {left}")


def check_files(root: Path, expected: Expected) -> None:
    """Every record that is not lost stands where it stood; files are of the right size; nothing else is left over."""
    content = {
        base: log_path(root, base).read_bytes() for base in bases_of(expected.written) if log_path(root, base).exists()
    }
    for offset, record in expected.written:
        if offset not in expected.lost:
            base = offset - offset % FILE_BYTES
            found = reference.decode(content[base], offset - base)
            assert found == record, f"the record at {offset}"
    assert {path.stat().st_size for path in (root / "commitlog").iterdir()} == {FILE_BYTES}
    assert {path.stat().st_size for path in (root / "consumequeue").glob("*/*/*")} == {QUEUE_FILE_BYTES}
    kept = root / "quarantined"
    names = sorted(path.name for path in kept.iterdir()) if kept.exists() else []
    assert len(names) == len(expected.put_away)
    for name, wanted in zip(names, sorted(expected.put_away), strict=True):
        assert name.startswith(wanted)
    assert list(root.glob(".allocating-*")) == []


def deliveries(
    store: MessageStore, queue: MessageQueue, group: str
) -> tuple[list[tuple[int, bytes]], list[tuple[int, int]]]:
    """Take everything of a queue, as a new group; return it and what was stepped over."""
    slot = store.groups.find_or_add(group, store.topics.slot(queue), 0)
    with slot.locked(store.config.lock_timeout_ms):
        slot.store("epoch", slot.load("epoch") + 1)
    grant = store.grants.grant(slot, slot.load("epoch"), TagSet(()))
    served: list[tuple[int, bytes]] = []
    while grant.has_more:
        batch = grant.take(64, 2_000)
        served += [(message.queue_offset, message.body) for message in batch]
        assert grant.acknowledge_offsets([message.queue_offset for message in batch])
    return served, [(queue_offset, offset) for queue_offset, offset, _ in grant.damaged]


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """Return what would differ after any change at all: of names, kinds, times, sizes or bytes."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (
            status.st_ino,
            status.st_mode,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            content,
        )
    return found


def durable_content(root: Path) -> dict[str, bytes]:
    """Return every file that a broker reads too, and the quarantined ones.

    Without the checkpoint, which has a counter, and the index, which is made again behind the writers, in files that
    are named by the time. Without the marks, too, in which each opening after a kill has its line.
    """
    passed_over = {"shared", "lock", "checkpoint", "index", "marks.jsonl"}
    kept = (path for path in root.rglob("*") if path.is_file())
    content = {path.relative_to(root): path for path in kept}
    return {str(name): path.read_bytes() for name, path in content.items() if name.parts[0] not in passed_over}


@contextmanager
def errors() -> Iterator[list[str]]:
    """Collect what the store says at level error or above."""
    said: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("rmqclient.store")
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


def runs(offsets: set[int], written: Written) -> list[tuple[int, int]]:
    """Return begin and end of each run of records that follow each other and are all among ``offsets``."""
    ends = {offset: offset + record.size for offset, record in written}
    return [
        (group[0], ends[group[-1]])
        for is_among, group in (
            (key, [offset for offset, _ in part]) for key, part in groupby(written, lambda item: item[0] in offsets)
        )
        if is_among
    ]


def truncate(path: Path, size: int) -> None:
    os.truncate(path, size)


def copy(written: Path, way: str, target: Path) -> Path:
    """Return a copy of a closed store as it is found in one of the ways."""
    shutil.rmtree(target, ignore_errors=True)
    return WAYS[way](written, target)
