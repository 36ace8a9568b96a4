"""A server under clients of many kinds for seconds, and what that rig takes for growth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.result import Result
from tests.torture.served.serve_soak import Sample, judge, run


@pytest.mark.sweep
def test_clients_of_many_kinds_keep_a_server_busy(tmp_path: Path) -> None:
    result = run(0, 1, tmp_path)
    assert [problem for problem in result.problems if not problem.startswith("memory")] == []
    for done in ("sent", "sent in batches", "sent for later", "handled", "pulled by strangers", "members that left"):
        assert int(result.figures[done]) > 0, done


@pytest.mark.parametrize("grown", ["memory_kib", "descriptors", "threads"])
def test_what_grows_from_the_second_to_the_last_quarter_is_found_out(grown: str) -> None:
    usual = {"memory_kib": 50_000, "descriptors": 40, "threads": 10}
    flat, rising = Result(""), Result("")
    judge([Sample(**usual)] * 40, flat)
    judge([Sample(**{**usual, grown: usual[grown] * (1 + number // 10)}) for number in range(40)], rising)
    assert flat.problems == []
    assert len(rising.problems) == 1
