"""Messages that break their handler, in every way in which one can be broken."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torture.kills import poison

GOOD = 200
"""The full size is the rig ``poison``."""


@pytest.mark.guarantee("G20")
@pytest.mark.guarantee("G22")
def test_poison_ends_as_dead_letters_and_the_good_messages_are_handled_once(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    result = poison.run(seed, GOOD, tmp_path)
    log = (tmp_path / "journal.log").read_text(errors="replace")
    assert result.problems == [], log[-20_000:]
