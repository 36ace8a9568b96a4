"""Plugin: what pytest reads of this package. It imports nothing else until a test asks for the fixture."""

# ruff: noqa: PLC0415 - imports inside the fixture, for the reason above

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rmqclient.testing.serving import Server


@pytest.fixture
def rmq_broker() -> Iterator[Server]:
    """A server on a free port, over an empty store that is removed after the test."""
    from rmqclient.testing.serving import serve

    with serve() as server:
        yield server
