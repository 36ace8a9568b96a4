"""A broadcast handler in real workers, one of which is killed."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient import App
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store
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


def test_a_worker_whose_name_another_process_still_has_waits_until_it_is_free(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    # Given a process that has the name of a worker, as one that outlives its supervisor does until it has finished
    app = App(tmp_path / "store")

    @app.handler("orders", group="caches", broadcast=True)
    def remember(order: bytes) -> None:
        raise AssertionError("nothing was sent")

    with open_store(tmp_path / "store") as store:
        left = PushConsumer(store, app.handlers, member_name="cache-1")
        left.start()

        # When that worker is started, and is refused more often than a worker may fail before it was ever ready
        supervised = supervise("broadcasting", "--processes", "1", "--member-name", "cache")
        eventually(lambda: supervised.log.count("ClientIdInUse: ") > 5, "six refusals", supervised)
        assert re.search("another process has its member name", supervised.log)
        left.close()

    # Then it is ready when the name is free
    supervised.ready(1)
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.exit_code() == 0
