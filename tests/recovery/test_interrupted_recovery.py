"""A process killed while it recovers: the next one does it again, and recovering twice is recovering once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.store import open_store
from rmqclient.store.crash_points import CrashPoint
from tests.recovery.scenes import copy, durable_content
from tests.recovery.test_repair import DAMAGES
from tests.support.stores import abandon
from tests.support.written import TOP

POINTS = [CrashPoint.RECOVERY_PLANNED, CrashPoint.RECOVERY_TAIL_CUT, CrashPoint.RECOVERY_APPLIED]

KILLED = """
import sys
from rmqclient.store import open_store
from rmqclient.store.crash_points import CrashPoint, arm
arm(CrashPoint[sys.argv[2]])
open_store(sys.argv[1], housekeeping=False)
"""


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name.lower())
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_recovery_that_was_killed_is_done_again(
    original: Path, target: Path, damage: Callable[[Path], None], point: CrashPoint
) -> None:
    # Given the same damage twice, and one recovery of it that nobody disturbs
    root, other = copy(original, "copied", target), copy(original, "copied", target.with_name("other"))
    for each in (root, other):
        damage(each)
    abandon(open_store(other, housekeeping=False))

    # When another is killed, and the next one recovers
    killed = subprocess.run([sys.executable, "-c", KILLED, str(root), point.name], cwd=TOP, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    abandon(open_store(root, housekeeping=False))

    # Then the directory is the same, and stays it
    assert durable_content(root) == durable_content(other)
    (root / "shared").unlink()
    abandon(open_store(root, housekeeping=False))
    assert durable_content(root) == durable_content(other)
