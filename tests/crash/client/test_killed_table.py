"""Tables while senders, and processes that have tables, are killed: they equal a dict, and so does one made anew."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient import Message, Producer, Table
from rmqclient.store import MessageStore, open_store
from tests.client.conftest import wait_for
from tests.crash.processes.child_table import QUEUES, TOPIC
from tests.support.host.forking import ROOT
from tests.support.oracle.views import published_records
from tests.support.stores import SMALL

ROUNDS = 9
A_ROUND = 50_000
"""Bytes of the log: more than a file."""
SEED = int(os.environ.get("RMQ_TEST_SEED", random.SystemRandom().randrange(1 << 31)))
LONG_S = 60.0


class Child:
    """A sender, or a follower."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.processes.child_table", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def table(self) -> dict[str, bytes]:
        """Ask a follower for what it knows."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("now", file=self.process.stdin, flush=True)
        return {key: value.encode() for key, value in json.loads(self.process.stdout.readline()).items()}


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    """Open a store whose topic has several queues; this process stays."""
    with open_store(root, replace(SMALL, default_queue_count=QUEUES), housekeeping=False) as opened:
        yield opened


@pytest.mark.crash
@pytest.mark.guarantee("G42")
def test_a_table_equals_a_dict_whoever_is_killed(store: MessageStore, root: Path) -> None:
    print(f"seed {SEED}")
    with ExitStack() as stack, Table(store, TOPIC) as table:
        # Given a table, one in another process, and two senders
        senders = [Child("send", root, SEED + number) for number in range(2)]
        follower = Child("follow", root)

        @stack.callback
        def _nobody_stays() -> None:
            for each in (*senders, follower):
                each.kill()

        for number in range(ROUNDS):
            # When senders are killed in turn, and the other process with a table now and then
            end = store.state.published_to + A_ROUND
            wait_for(lambda end=end: store.state.published_to > end, "more updates", timeout_s=LONG_S)  # type: ignore[misc]
            senders[number % 2].kill()
            senders[number % 2] = Child("send", root, SEED + 2 + number)
            if number % 3 == 2:
                follower.kill()
                follower = Child("follow", root)
        for sender in senders:
            sender.kill()
        with Producer(store) as producer:  # whose append settles what the dead have left
            table.wait_for(producer.send(Message(TOPIC, b"last", keys="last")), LONG_S)
        # Then both equal a dict that was given the messages in the order of the log
        expected = last_values(store)
        table.wait_until_caught_up(LONG_S)
        assert dict(table) == expected
        assert (table.lost, table.without_key) == (0, 0)
        assert follower.table() == expected
    # and so does one that begins later
    with Table(store, TOPIC) as table:
        assert dict(table) == expected


def last_values(store: MessageStore) -> dict[str, bytes]:
    """Return what a dict holds after every record of the log, by the slow reference codec."""
    values: dict[str, bytes] = {}
    for record in published_records(store):
        key = record.property_map["KEYS"]
        values.pop(key, None)
        if record.body:
            values[key] = record.body
    return values
