"""Supervisors that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.workers.supervised import Supervised


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    """Start ``rmq run`` of an application in ``tests/workers/apps``, or of a target, with the given options."""
    started: list[Supervised] = []

    def start(application: str, *options: str, command: Sequence[str] | None = None) -> Supervised:
        started.append(Supervised(tmp_path, application, *options, command=command))
        return started[-1]

    yield start
    for supervised in started:
        supervised.end()
