"""Some thousand mutated inputs for each parser."""

from __future__ import annotations

import random
from pathlib import Path

from tests.torture.damage import fuzz


def test_no_input_makes_a_parser_crash_hang_or_raise_what_it_does_not_document(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    assert fuzz.run(seed, 1, tmp_path).problems == []
