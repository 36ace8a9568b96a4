"""What a test of tasks leaves behind: nothing, once the clients that its process keeps are closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqclient.spark.cluster.clients import close_kept_clients
from tests.support.cluster.leftovers import nothing_left_behind


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left_behind():
        yield
        close_kept_clients()
