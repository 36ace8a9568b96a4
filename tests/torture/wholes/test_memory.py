"""A log that grows for seconds under everybody who works at it, and what each of them has in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.wholes import memory


@pytest.mark.sweep
def test_nobody_at_a_growing_log_grows_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "ROUND_S", 20.0)
    result = memory.run(0, 1, tmp_path)
    assert result.problems == []
    looked_at = {name.removesuffix(", most MiB") for name in result.figures if name.endswith("most MiB")}
    assert looked_at >= {"sender", "supervisor", "worker 0", "server", "remote reader"}
