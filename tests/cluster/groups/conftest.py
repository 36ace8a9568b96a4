"""The state directory of a test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RMQ_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"
