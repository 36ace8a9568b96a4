"""A disk that is lost and comes back without a boot: the kernel is the same, and its memory is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.power.disks import machine, plugging, thin


@pytest.mark.crash
@pytest.mark.guarantee("G109")
@pytest.mark.parametrize("file_system", machine.MAKING)
def test_a_disk_that_comes_back_delivers_each_delayed_message_once(tmp_path: Path, file_system: str) -> None:
    # Given delivered messages whose copies were lost with the disk, and a runtime file that was not
    if reason := machine.why_not(file_system):
        pytest.skip(reason)
    found = plugging.run(file_system, tmp_path)

    # Then the store that is opened on the same boot goes by what the disk has
    assert found == {"ended": [-9, 0], "runtime_file": True, "level": 1, "exact": 1, "later": 2, "problems": []}


@pytest.mark.crash
@pytest.mark.guarantee("G112")
def test_after_a_failed_flush_the_next_opening_goes_by_what_the_disk_has(tmp_path: Path) -> None:
    # Given delivered messages whose copies could not be written, so that the store was poisoned
    if reason := machine.why_not(thin.FILE_SYSTEM):
        pytest.skip(reason)
    found = thin.run(tmp_path)

    # Then the store that is opened again delivers each of them once, and keeps that
    assert found == {"ended": [-9, 0], "lost": [], "twice": [], "later": 2, "problems": []}
