"""Fixtures of the broker's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.asking import Asking, asking


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Asking]:
    """Return what asks a broker over an empty store."""
    with asking(tmp_path) as found:
        yield found
