"""A house for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.groups.house import House, house_of


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with house_of(tmp_path / "store") as opened:
        opened.fill()
        yield opened
