"""Pages share a look at the processes of the host for some seconds, and then look again."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient.dashboard.looking import around
from rmqclient.dashboard.looking.around import KEPT_S, Around
from rmqclient.store.threads.standing import Onlooked


def test_a_look_at_the_processes_is_kept_for_some_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    now = [0.0]

    def look(root: str) -> Onlooked:
        looks.append(root)
        return Onlooked([], [])

    monkeypatch.setattr(around, "look", look)
    seen = Around(lambda: tmp_path, lambda: now[0])
    first = seen.now()
    now[0] = KEPT_S
    assert seen.now() is first
    now[0] = KEPT_S + 0.1
    assert seen.now() is not first
    assert looks == [str(tmp_path)] * 2
