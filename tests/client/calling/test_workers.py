"""Lifespans and middleware in the workers of ``rmq run``."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.supervised import Supervised

APPLICATION = str(Path(__file__).parent / "apps" / "lasting")

pytestmark = pytest.mark.slow


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[Supervised]]:
    """Supervisors that end with their test."""
    started: list[Supervised] = []
    yield started
    for supervised in started:
        supervised.end()


@pytest.mark.guarantee("G61")
def test_each_worker_has_a_lifespan_of_its_own(workers: list[Supervised], tmp_path: Path) -> None:
    workers.append(run := Supervised(tmp_path, APPLICATION, "--processes", "2"))
    pids = set(run.ready(2).values())
    run.send("one")
    assert run.recorded("handled") in pids
    assert run.recorded("surrounded billing") in pids
    run.process.send_signal(signal.SIGTERM)
    assert run.exit_code() == 0
    assert set(run.records("pool closed")) == pids


def test_a_worker_whose_lifespan_fails_says_which_and_is_started_again(
    workers: list[Supervised], tmp_path: Path
) -> None:
    (tmp_path / "fail-at-start").touch()
    workers.append(run := Supervised(tmp_path, APPLICATION, "--processes", "1"))
    run.logged(r"the worker cannot start: lifespan function .*lasting:made failed; ConnectionError: no database")
    (tmp_path / "fail-at-start").unlink()
    run.ready(1)
    (tmp_path / "fail-at-end").touch()
    run.process.send_signal(signal.SIGTERM)
    assert run.exit_code() == 0
    run.logged(r"the worker stops; closing it failed: lifespan function .*made failed; ConnectionError: it has gone")


def test_a_lifespan_that_ends_by_an_error_without_a_text_ends_its_worker_as_any_other(
    workers: list[Supervised], tmp_path: Path
) -> None:
    (tmp_path / "fail-without-words").touch()
    workers.append(run := Supervised(tmp_path, APPLICATION, "--processes", "1"))
    run.ready(1)
    run.process.send_signal(signal.SIGTERM)
    assert run.exit_code() == 0
    run.logged(r"closing it failed: lifespan function .*made failed; Silent: \(no text: SystemExit\)")
