"""How a Spark read is shared out: every wanted message is in one task, whichever way, and tasks have their sizes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from rmqclient.arrow.columns import USUAL
from rmqclient.arrow.ranges import Ranges
from rmqclient.filters.tag import parse_tags
from rmqclient.spark.files.planning import plan
from rmqclient.spark.scan.offsets import count
from rmqclient.spark.scan.place import Split
from rmqclient.spark.scan.read_options import ReadOptions, parse
from rmqclient.store import Message, MessageQueue, open_store
from rmqclient.store.inspect.view import LocalView, entry_at
from tests.support.oracle import reference
from tests.support.sweeps import share_of
from tests.support.written import SMALL, appender_of, fill, forget_oldest, overwrite, written_store

ORDERS, PAYMENTS_0, PAYMENTS_1 = MessageQueue("orders", 0), MessageQueue("payments", 0), MessageQueue("payments", 1)
COLUMNS = list(USUAL)
USUAL_OPTIONS = parse({"path": "store", "subscribePattern": ".*"}, streaming=False)
Where = dict[tuple[MessageQueue, int], int]
"""Commit log offset by queue and queue offset."""


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> LocalView:
    """A store without its oldest messages, and with some large ones among small ones."""
    root = tmp_path_factory.mktemp("planning") / "store"
    with open_store(root, SMALL, housekeeping=False) as store:
        fill(store)
        forget_oldest(store)
        fill(store, 60)
        for size in (1, 2_000, 2_000, 3):
            appender_of(store).append(Message("orders", bytes(size)))
    return LocalView(root)


@pytest.fixture(scope="module")
def where(view: LocalView) -> Where:
    records = reference.read_commit_log(view.root)
    return {(MessageQueue(each.topic, each.queue_id), each.queue_offset): offset for offset, each in records}


@st.composite
def wanted_ranges(draw: st.DrawFn, view: LocalView) -> Ranges:
    found = {}
    for queue in draw(st.sets(st.sampled_from(view.queues()), min_size=1)):
        there = view.offsets(queue)
        start = draw(st.integers(there.start, there.stop - 1))
        found[queue] = range(start, draw(st.integers(start + 1, there.stop)))
    return found


@st.composite
def any_options(draw: st.DrawFn) -> ReadOptions:
    return replace(
        USUAL_OPTIONS,
        split=draw(st.sampled_from(["auto", "queue", "log"])),
        min_partitions=draw(st.integers(1, 12)),
        max_records_per_partition=draw(st.none() | st.integers(1, 60)),
        max_bytes_per_partition=draw(st.sampled_from([1, 500, 5_000, 128 << 20])),
    )


def read_by(split: Split, where: Where) -> list[tuple[MessageQueue, int]]:
    """Return the messages that a task yields."""
    messages = [(queue, offset) for queue, offsets in split.ranges().items() for offset in offsets]
    assert len(split.ranges()) == len(split.pieces)
    if split.log is None:
        return messages
    start, stop = split.log
    return [message for message in messages if start <= where[message] < stop]


@settings(max_examples=share_of(50))
@given(st.data())
def test_every_wanted_message_is_in_one_task(view: LocalView, where: Where, data: st.DataObject) -> None:
    wanted = data.draw(wanted_ranges(view))
    splits = plan(view, wanted, COLUMNS, data.draw(any_options()))
    found = [message for split in splits for message in read_by(split, where)]
    assert sorted(found) == sorted((queue, offset) for queue, offsets in wanted.items() for offset in offsets)


@settings(max_examples=share_of(50))
@given(st.data())
def test_the_log_is_cut_where_records_begin_and_without_a_gap(
    view: LocalView, where: Where, data: st.DataObject
) -> None:
    wanted = data.draw(wanted_ranges(view))
    splits = plan(view, wanted, COLUMNS, replace(data.draw(any_options()), split="log"))
    ranges = [split.log for split in splits if split.log is not None]
    assert len(ranges) == len(splits)
    assert {start for start, _ in ranges} <= set(where.values())
    assert all(one[1] == other[0] for one, other in pairwise(ranges))
    assert all(start < stop for start, stop in ranges)
    last = max(entry_at(view, queue, offsets.stop - 1) for queue, offsets in wanted.items())
    assert ranges[-1][1] == last.commit_log_offset + last.size, "and no further than is wanted"


@settings(max_examples=share_of(50))
@given(st.data())
def test_a_task_has_no_more_messages_and_about_no_more_bytes_than_allowed(view: LocalView, data: st.DataObject) -> None:
    wanted = data.draw(wanted_ranges(view))
    options = replace(data.draw(any_options()), split="queue")
    for split in plan(view, wanted, COLUMNS, options):
        assert count(split.ranges().values()) > 0
        assert count(split.ranges().values()) <= (options.max_records_per_partition or 1 << 60)


@pytest.mark.parametrize("split", ["queue", "log"])
@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 8, 16])
def test_there_are_at_least_as_many_tasks_as_asked_for(view: LocalView, split: str, tasks: int) -> None:
    wanted = {queue: view.offsets(queue) for queue in view.queues()}
    given_ = {"path": "s", "subscribePattern": ".*", "minPartitions": str(tasks), "split": split}
    found = plan(view, wanted, COLUMNS, parse(given_, streaming=False))
    assert tasks <= len(found) <= tasks + len(wanted)


def test_bytes_of_a_task_are_about_what_was_asked_for(view: LocalView) -> None:
    there = {PAYMENTS_0: view.offsets(PAYMENTS_0), PAYMENTS_1: view.offsets(PAYMENTS_1)}
    options = replace(USUAL_OPTIONS, split="queue", max_bytes_per_partition=3_000)
    sizes = [
        sum(entry_at(view, queue, offset).size for queue, offsets in split.ranges().items() for offset in offsets)
        for split in plan(view, there, COLUMNS, options)
    ]
    assert len(sizes) > 3
    assert all(1_000 < size < 4_500 for size in sizes[:-1]), sizes


def is_by_log(view: LocalView, wanted: Ranges, columns: list[str] = COLUMNS, **options: object) -> bool:
    splits = plan(view, wanted, columns, replace(USUAL_OPTIONS, **options))  # type: ignore[arg-type]
    return all(split.log is not None for split in splits)


def test_the_log_is_walked_over_when_most_of_it_is_wanted(view: LocalView) -> None:
    everything = {queue: view.offsets(queue) for queue in view.queues()}
    few = {PAYMENTS_0: view.offsets(PAYMENTS_0)}
    assert is_by_log(view, everything)
    assert not is_by_log(view, few)
    assert is_by_log(view, few, split="log")
    assert not is_by_log(view, everything, split="queue")
    assert not is_by_log(view, everything, max_records_per_partition=5), "which only entries can count"
    assert not is_by_log(view, everything, tags=parse_tags("tag1")), "whose hashes only entries have"
    assert not is_by_log(view, everything, ["offset", "size", "topic"]), "which entries answer alone"
    assert is_by_log(view, everything, ["offset", "tags"])


@pytest.mark.parametrize("lost", ["blank", "file"])
def test_a_read_whose_entries_are_lost_is_shared_out_by_queue(tmp_path: Path, lost: str) -> None:
    # Given a queue whose first entry is blank, or whose first file is gone
    root = written_store(tmp_path / "store")
    view = LocalView(root)
    wanted = {queue: view.offsets(queue) for queue in view.queues()}
    path = min((root / "consumequeue" / "orders" / "0").iterdir())
    if lost == "blank":
        overwrite(path, 0, bytes(20))
    else:
        path.unlink()

    # Then each message is in one task all the same, and its task says what is lost
    splits = plan(LocalView(root), wanted, COLUMNS, replace(USUAL_OPTIONS, split="log", min_partitions=3))
    assert {split.log for split in splits} == {None}
    pieces = sorted((piece.queue, offset) for split in splits for piece in split.pieces for offset in range(*piece[1:]))
    assert pieces == sorted((queue, offset) for queue, offsets in wanted.items() for offset in offsets)


def test_nothing_is_shared_out_to_no_task(view: LocalView) -> None:
    assert plan(view, {}, COLUMNS, USUAL_OPTIONS) == []


def test_a_task_is_few_numbers(view: LocalView) -> None:
    # It is sent to where it runs, and its size is time: 192 ms for 32 MiB
    wanted = {queue: view.offsets(queue) for queue in view.queues()}
    assert all(len(pickle.dumps(split)) < 500 for split in plan(view, wanted, COLUMNS, USUAL_OPTIONS))
