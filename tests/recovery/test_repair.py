"""``rmq store repair``: the plan is what happens, a dry run changes nothing, only closed stores are."""

from __future__ import annotations

import fcntl
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import layout, open_store
from rmqclient.store.inspect import verify
from rmqclient.store.layout import COPYING, RECORDED
from rmqclient.store.log.consume_queue import Entry
from rmqclient.store.recovery import recovery
from rmqclient.store.recovery.recovery import RecoveryPlan, Survey
from rmqclient.store.repair import planned
from rmqclient.store.runtime import shared_state
from rmqclient.store.runtime.shared_state import group_queue_slot_at, queue_slot_at
from tests.recovery.scenes import (
    FILE_BYTES,
    QUEUES,
    copy,
    durable_content,
    log_path,
    queue_path,
    snapshot,
    truncate,
)
from tests.support.oracle import reference
from tests.support.stores import abandon
from tests.support.written import ORDERS, SMALL, fill, run, run_here


def tear_the_tail(root: Path) -> None:
    offset, record = reference.read_commit_log(root)[-1]
    overwrite_log(root, offset + record.size, b"torn" * 20)


def lose_a_file_of_the_log(root: Path) -> None:
    log_path(root, 2 * FILE_BYTES).unlink()


def lose_a_file_of_a_queue(root: Path) -> None:
    queue_path(root, QUEUES[0], 1).unlink()


def cut_a_file_short(root: Path) -> None:
    truncate(log_path(root, FILE_BYTES), 10_000)


def make_a_file_longer(root: Path) -> None:
    with log_path(root, FILE_BYTES).open("ab") as file:
        file.write(b"surplus")


def bring_a_foreign_file(root: Path) -> None:
    log_path(root, 20 * FILE_BYTES).write_bytes(b"x" * FILE_BYTES)


def leave_it_alone(_: Path) -> None:
    """Leave a whole store."""


DAMAGES: dict[Callable[[Path], None], str] = {
    tear_the_tail: r"cut at \d+: no magic code of a record",
    lose_a_file_of_the_log: f"quarantine bytes {2 * FILE_BYTES} to {3 * FILE_BYTES}: the file is missing",
    lose_a_file_of_a_queue: r"dispatch 0 to \d+",
    cut_a_file_short: f"has 10000 bytes instead of {FILE_BYTES}: zeros stand for those that are missing",
    make_a_file_longer: f"instead of {FILE_BYTES}: the 7 bytes behind its end go to quarantined/",
    bring_a_foreign_file: f"move the commit log file at {20 * FILE_BYTES}, to which no record leads, to quarantined/",
    leave_it_alone: r"commit log from 0 to \d+",
}


def overwrite_log(root: Path, offset: int, content: bytes) -> None:
    base = offset - offset % FILE_BYTES
    with log_path(root, base).open("r+b") as file:
        file.seek(offset - base)
        file.write(content)


@pytest.mark.guarantee("G57")
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_dry_run_prints_the_plan_and_changes_nothing(
    original: Path, target: Path, way: str, damage: Callable[[Path], None]
) -> None:
    root = copy(original, way, target)
    damage(root)
    before = snapshot(root)
    done = run_here("repair", root, "--dry-run")
    assert done.exit_code == 0
    assert snapshot(root) == before
    assert re.search(DAMAGES[damage], done.stdout)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_repair_does_what_the_first_opener_does(
    original: Path, target: Path, way: str, damage: Callable[[Path], None]
) -> None:
    # Given the same damage twice
    root, other = copy(original, way, target), copy(original, way, target.with_name("other"))
    for each in (root, other):
        damage(each)

    # When one is repaired and the other is opened
    dry = planned(root)
    done = run_here("repair", root)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == dry
    open_store(other, housekeeping=False).close()

    # Then both hold the same, and there is nothing left to do
    assert durable_content(root) == durable_content(other)
    assert not (root / "abort").exists()
    after = planned(root)
    assert not any(line.startswith(("cut", "move", "remove", "dispatch")) or "instead of" in line for line in after)
    once = durable_content(root)
    assert run_here("repair", root).exit_code == 0
    assert durable_content(root) == once


def test_verify_finds_nothing_after_a_repair_that_lost_nothing(original: Path, target: Path, way: str) -> None:
    root = copy(original, way, target)
    for damage in (tear_the_tail, lose_a_file_of_a_queue, make_a_file_longer, bring_a_foreign_file):
        damage(root)
    assert {problem.invariant for problem in verify.verify(root)} == {1, 3, 4}
    assert run("verify", root).returncode == 6
    assert run("repair", root).returncode == 0
    assert run("verify", root).returncode == 0


@pytest.mark.parametrize("arguments", [[], ["--dry-run"]])
def test_a_store_that_somebody_has_open_is_refused(original: Path, target: Path, arguments: list[str]) -> None:
    root = copy(original, "closed", target)
    with open_store(root, housekeeping=False):
        before = snapshot(root)
        done = run("repair", root, *arguments)
        assert (done.returncode, done.stdout) == (3, "")
        assert "is open in another process: stop all that use it first" in done.stderr
        assert snapshot(root) == before
    assert run("repair", root, *arguments).returncode == 0


def test_a_store_that_a_broker_has_open_is_refused(original: Path, target: Path) -> None:
    root = copy(original, "closed", target)
    with (root / "lock").open("r+b") as lock:
        fcntl.fcntl(lock, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0))  # as Java does
        done = run("repair", root)
        assert done.returncode == 3
        assert "is open in another process" in done.stderr


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "nowhere"):
        done = run("repair", root)
        assert done.returncode == 3
        assert "store" in done.stderr
    assert list(tmp_path.iterdir()) == []


def leave_an_append_under_way(root: Path) -> None:
    """Leave the last record written, and not yet published: nothing to damage, but to finish."""
    left = shared_state.leftover(root)
    if left is not None:
        offset, record = reference.read_commit_log(root)[-1]
        left.append_from, left.written_to = offset, offset + record.size
        left.flushed_to = left.published_to = offset
        left.append_stage = RECORDED


def damage_the_frontiers(root: Path) -> None:
    left = shared_state.leftover(root)
    if left is not None:
        left.published_to = left.written_to + 8


def damage_an_offset_of_a_group(root: Path) -> None:
    left = shared_state.leftover(root)
    if left is not None:
        left.words.store(group_queue_slot_at(0) + layout.GROUP_QUEUE_SLOT.at["advance_to"], 1 << 40)


@pytest.mark.parametrize(
    "damage",
    [*DAMAGES, leave_an_append_under_way, damage_the_frontiers, damage_an_offset_of_a_group],
    ids=lambda damage: damage.__name__,
)
def test_opening_carries_out_the_plan_of_the_dry_run(
    original: Path, target: Path, way: str, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given the plans that are made, by a dry run and by an opening after its first steps
    plans: list[RecoveryPlan] = []
    plan = recovery.plan

    def watched(found: Survey) -> RecoveryPlan:
        plans.append(plan(found))
        return plans[-1]

    monkeypatch.setattr(recovery, "plan", watched)
    root = copy(original, way, target)
    damage(root)
    planned(root)
    open_store(root, housekeeping=False).close()

    # Then they differ only in the entries: a dry run maps no consume queue, so it takes all for wrong
    dry, deed = plans
    assert (dry.first.resize, dry.first.settle) == (deed.first.resize, deed.first.settle)
    assert (dry.first.leftover is None) == (deed.first.leftover is None)
    if way == "closed":
        assert (deed.first.leftover is None) == (damage in (damage_the_frontiers, damage_an_offset_of_a_group))
        assert (deed.first.settle is None) == (damage is not leave_an_append_under_way)
    assert replace(dry, first=deed.first, dispatch_ranges=(), queue_ends={}) == replace(
        deed, dispatch_ranges=(), queue_ends={}
    )
    for start, end in deed.dispatch_ranges:
        assert any(first <= start <= end <= last for first, last in dry.dispatch_ranges)


@pytest.mark.parametrize("stage", [COPYING, RECORDED])
def test_the_plan_foresees_what_becomes_of_an_append_under_way(target: Path, stage: int) -> None:
    # Given a process that died in an append, its record all there, its entry not
    store = open_store(target, SMALL, housekeeping=False)
    fill(store, 20)
    store.flusher.flush_thorough()
    (queue,) = store.topics.queues(ORDERS)
    fill(store, 1)
    offset, record = reference.read_commit_log(target)[-1]
    store.consume_queues[queue].write(record.queue_offset, Entry(0, 0, 0))
    at = queue_slot_at(store.topics.slot(queue)) + layout.QUEUE_SLOT.at["max_offset"]
    store.state.words.store(at, record.queue_offset)
    store.state.append_from, store.state.written_to = offset, offset + record.size
    store.state.append_stage = stage
    store.state.published_to = offset
    abandon(store)

    # Then the plan says what happens to it, and that happens
    before = snapshot(target)
    plan = planned(target)
    assert snapshot(target) == before
    end = offset + record.size if stage == RECORDED else offset
    assert f"commit log from 0 to {end}" in plan
    done = "finish" if stage == RECORDED else "undo"
    assert f"{done} the append of a killed process, bytes {offset} to {offset + record.size}" in plan
    open_store(target, housekeeping=False).close()
    last, record = reference.read_commit_log(target)[-1]
    assert last + record.size == end
    assert reference.check_store(target) == []
