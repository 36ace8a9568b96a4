"""A broadcast handler in real workers, one of which is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

from tests.workers.supervised import Supervised, eventually, rmq

pytestmark = pytest.mark.slow


@pytest.mark.guarantee("G17")
def test_a_replaced_worker_goes_on_where_the_one_before_it_was(supervise: Callable[..., Supervised]) -> None:
    # Given two workers that have both handled a message
    supervised = supervise("broadcasting", "--processes", "2", "--member-name", "cache")
    pids = supervised.ready(2)
    supervised.send("one")
    eventually(lambda: set(supervised.records("one")) == set(pids.values()), "both have the message", supervised)

    # When one is killed, and another message is sent
    os.kill(pids[1], signal.SIGKILL)
    supervised.send("two")
    replaced = supervised.replaced(1, pids[1])
    eventually(lambda: set(supervised.records("two")) == {replaced, pids[2]}, "both have the other one", supervised)

    # Then the new one got that alone, under the name of the one before it
    assert replaced not in supervised.records("one")
    rows = json.loads(rmq("group", "lag", "caches", "--store", str(supervised.root), "-o", "json"))
    assert {(row["group"], row["member"]) for row in rows} == {("caches", "cache-1"), ("caches", "cache-2")}
    assert sum(row["lag"] for row in rows) == 0
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.exit_code() == 0
