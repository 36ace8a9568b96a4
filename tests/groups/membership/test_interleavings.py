"""The rebalance under every interleaving that some seeds give: see :mod:`tests.groups.interleaving`."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from rmqclient.store import Member, MemberInfo, MemberTable
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.runtime.roll import Roll
from rmqclient.store.runtime.slot_table import OwnedSlots
from tests.groups.interleaving import Broken, stage
from tests.torture.kills import interleavings


@pytest.mark.guarantee("G8")
def test_whoever_dies_stops_or_leaves_at_whatever_instruction_a_queue_has_one_owner_and_gets_one(
    tmp_path: Path,
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    assert interleavings.run(seed, 24, tmp_path).problems == []


def test_a_seed_is_a_whole_run_whatever_ran_before(tmp_path: Path) -> None:
    with stage(tmp_path / "one") as play:
        alone = play(7).grants
    with stage(tmp_path / "other") as play:
        play(12)
        assert play(7).grants == alone


@pytest.mark.parametrize(
    "fault", ["everything is free", "no mutex", "the living are buried", "nobody watches", "an epoch is used again"]
)
def test_a_planted_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    match fault:
        case "everything is free":
            monkeypatch.setattr(Member, "_is_free", lambda *_: True)
        case "no mutex":
            monkeypatch.setattr(GroupQueueSlot, "locked", lambda *_: ExitStack())
        case "the living are buried":
            monkeypatch.setattr(OwnedSlots, "is_alive", lambda *_: False)
        case "nobody watches":
            monkeypatch.setattr(MemberTable, "watch", lambda *_: False)
            monkeypatch.setattr(Roll, "counted", counted_for_ever)
        case "an epoch is used again":
            monkeypatch.setattr(GroupQueueSlot, "load", load_no_epoch)
    with stage(tmp_path / "store") as play, pytest.raises(Broken):
        for seed in range(60):
            play(seed)


def counted_for_ever(roll: Roll, group: str, topic: str, _lease_ms: int) -> tuple[MemberInfo, ...]:
    """Return the members as if none could be stopped."""
    return roll.in_topic(group, topic)


def load_no_epoch(slot: GroupQueueSlot, field: str, load: object = GroupQueueSlot.load) -> int:
    """Read a word, but of the epoch a two-bit one."""
    assert callable(load)
    value = int(load(slot, field))
    return value % 4 if field == "epoch" else value
