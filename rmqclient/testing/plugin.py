"""Plugin: what pytest reads of this package. It imports nothing else until a test asks for a fixture."""

# ruff: noqa: PLC0415 - imports inside the fixture, for the reason above

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rmqclient import App
    from rmqclient.testing.kit import Kit
    from rmqclient.testing.serving import Server


@pytest.fixture
def rmq_broker() -> Iterator[Server]:
    """A server on a free port, over an empty store that is removed after the test."""
    from rmqclient.testing.serving import serve

    with serve() as server:
        yield server


@pytest.fixture
def rmq() -> Iterator[Callable[..., Kit]]:
    """A function that makes the test's kit from its applications. The kit is closed, and its store removed, at the end.

    ::

        def test_bill(rmq):
            kit = rmq(app)
    """
    from rmqclient.testing.kit import Kit

    with ExitStack() as stack:

        def make(*apps: App, **options: object) -> Kit:
            return stack.enter_context(Kit(*apps, **options))  # type: ignore[arg-type]

        yield make
