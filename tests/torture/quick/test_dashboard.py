"""A dashboard with twenty clients for two short rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")
pytest.importorskip("uvicorn", reason="rmq dashboard needs uvicorn")

from tests.torture.wholes import dashboard
from tests.torture.wholes.dashboard import WARM_ROUNDS, Memory, growth_of


@pytest.mark.slow
@pytest.mark.sweep
def test_twenty_clients_are_answered_while_workers_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "ROUND_S", 2.0)
    result = dashboard.run(7, 2, tmp_path)
    assert result.problems == []
    assert result.figures["live updates"]


def test_growth_is_that_of_the_own_memory_behind_the_warm_up() -> None:
    warm = [Memory(50.0 + minute, 0.0) for minute in range(WARM_ROUNDS)]
    assert growth_of(warm) is None
    assert growth_of(warm + [Memory(80.0, minute) for minute in range(30)]) == 0
    assert growth_of(warm + [Memory(80.0 + minute, 0.0) for minute in range(30)]) == pytest.approx(20 / 84.5)
