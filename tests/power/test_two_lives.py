"""What a power cut has taken does not come back after the next one; and a store in use is known for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.power.disks.machine import why_not
from tests.power.two_lives import Life, do_nothing, leave, run, send_and_flush, send_and_lose, send_one_page

FLUSHED = [f"flushed {number}" for number in range(4)]
LATER = [f"later {number}" for number in range(4)]


@pytest.fixture(autouse=True)
def _has_a_machine() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.mark.crash
@pytest.mark.guarantee("G5")
@pytest.mark.parametrize(("later", "sent"), [(send_one_page, ["later"]), (send_and_flush, LATER)])
def test_a_record_that_recovery_has_cut_does_not_come_back_behind_a_new_one(
    tmp_path: Path, later: Life, sent: list[str]
) -> None:
    found = run("ext4", send_and_lose, later, tmp_path)
    assert found == {"bodies": FLUSHED + sent, "problems": [], "in use": True}


@pytest.mark.crash
@pytest.mark.parametrize(("last", "in_use"), [(do_nothing, True), (leave, False)])
def test_a_store_that_was_open_at_a_power_cut_is_not_taken_for_one_that_was_closed(
    tmp_path: Path, last: Life, in_use: bool
) -> None:
    assert run("ext4", leave, last, tmp_path)["in use"] is in_use
