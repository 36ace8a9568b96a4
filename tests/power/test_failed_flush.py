"""A flush that fails, for some of the calls that can; ``python -m tests.torture failed-flush`` takes all of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqclient.store import Durability
from tests.power.disks import dead_disk, machine
from tests.power.disks.failing import inject, why_not

SEED = random.SystemRandom().randrange(1 << 32)


@pytest.mark.crash
@pytest.mark.guarantee("G2")
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside another"])
@pytest.mark.parametrize("durability", Durability)
@pytest.mark.parametrize("number", [1, 3])
def test_a_failed_fdatasync_poisons_the_store_for_everybody(
    tmp_path: Path, number: int, durability: Durability, alone: bool
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    outcome = inject(tmp_path / "store", number, durability=durability, alone=alone)
    assert outcome.problems == []
    assert outcome.injected >= 1
    assert outcome.acknowledged_after == 0


@pytest.mark.crash
def test_a_run_in_which_nothing_fails_is_told_of_nothing(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    outcome = inject(tmp_path / "store", 1_000, durability=Durability.SYNC)
    assert (outcome.problems, outcome.injected, outcome.refused) == ([], 0, 0)
    assert outcome.acknowledged_before > 0


@pytest.mark.crash
@pytest.mark.guarantee("G2")
def test_when_the_disk_is_gone_no_send_returns_any_more(tmp_path: Path) -> None:
    if reason := machine.why_not("ext4"):
        pytest.skip(reason)
    found = dead_disk.run("ext4", 4, SEED, tmp_path)
    assert found["problems"] == [], f"seed {SEED}"
    assert found["acknowledged_after"] == 0
    assert found["acknowledged_before"] > 0
    assert found["refused"] > 0
