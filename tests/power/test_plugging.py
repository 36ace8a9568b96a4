"""A disk that is pulled out and plugged in again without a boot: the kernel is the same, and its memory is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.power.disks import machine, plugging


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
