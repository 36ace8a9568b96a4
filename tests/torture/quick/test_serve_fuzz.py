"""Mutated requests against a server, some thousands of them."""

from __future__ import annotations

import random
from pathlib import Path

from tests.torture.damage.frames import Requests
from tests.torture.wholes import serve_fuzz


def test_mutated_requests_get_typed_answers_and_the_server_goes_on(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    result = serve_fuzz.run(seed, 5_000, tmp_path)
    assert result.problems == []
    assert result.figures["mutated requests that the server read"] == 5_000


def test_most_mutated_requests_are_still_frames() -> None:
    rng, requests = random.Random(1), Requests()
    whole = sum(requests.one(rng).is_whole for _ in range(2_000))
    assert 1_800 < whole < 2_000
