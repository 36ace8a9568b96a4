"""``rmq schedule``: a person sees what waits for its time, and takes it back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.workers.supervised import APPS
from workers.cli import rmq


def test_the_schedules_of_an_application_are_listed_with_their_next_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    done = CliRunner().invoke(rmq, ["schedule", "crons", f"{APPS / 'scheduling.py'}:app", "-o", "json"])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert row.pop("next").endswith("Z")
    assert row == {
        "name": "second",
        "topic": "reports",
        "when": "every 0:00:01",
        "misfire_grace_s": 30,
        "coalesce": False,
    }
