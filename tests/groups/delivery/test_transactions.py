"""Producers of one group in several processes, killed one after the other: the others answer for the dead."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from rmqclient import Decision, ReceivedMessage, StoreConfig, TransactionProducer
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.store.config import TransactionConfig
from tests.client.conftest import wait_for
from tests.groups.processes.transaction_child import GROUP, TOPIC, is_done
from tests.support.oracle import reference

CONFIG = StoreConfig(
    transactions=TransactionConfig(timeout_ms=2_000, check_interval_ms=200, check_max=1_000), default_queue_count=1
)
QUEUE = MessageQueue(TOPIC, 0)
LIVES = 5
SPAN = 1_000_000
"""Numbers of one life: none gets so far."""


def sent(store: MessageStore) -> list[int]:
    return [int(store.messages.at(QUEUE, number).body) for number in range(store.topics.max_offset(QUEUE))]


@pytest.mark.crash
@pytest.mark.guarantee("G31")
@pytest.mark.guarantee("G32")
def test_what_killed_producers_left_is_decided_by_the_living(tmp_path: Path) -> None:
    # Given producers, two at a time, that are killed at random moments
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    root, journal = tmp_path / "store", tmp_path / "journal"
    journal.touch()
    with open_store(root, CONFIG) as store:
        store.topics.create(TOPIC, 1)
        alive: list[subprocess.Popen[str]] = []
        with ExitStack() as children:
            for life in range(LIVES):
                module = "tests.groups.processes.transaction_child"
                command = [sys.executable, "-m", module, *map(str, (root, journal, life * SPAN))]
                child = children.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
                children.callback(child.kill)
                alive.append(child)
                assert child.stdout is not None
                assert child.stdout.readline() == "ready\n"
                time.sleep(chosen.uniform(0.01, 0.2))  # how long it lives is what the test varies
                if len(alive) == 2:
                    alive.pop(chosen.randrange(2)).kill()
            wait_for(lambda: len(journal.read_text(encoding="ascii").split()) > LIVES, "enough is done")
        # When one is left that knows what was done
        asked: list[int] = []

        def check(message: ReceivedMessage) -> Decision:
            asked.append(int(message.body))
            return Decision.COMMIT if is_done(journal, asked[-1]) else Decision.ROLLBACK

        with TransactionProducer(store, group=GROUP, check=check):
            wait_for(lambda: not store.transactions.pending(), "all is decided", timeout_s=30)

        # Then what was done was sent, once, and nothing else was
        done = Counter(int(line) for line in journal.read_text(encoding="ascii").split())
        print(f"{len(done)} done, {len(asked)} asked about after the last kill")
        assert Counter(sent(store)) == done
        assert len(done) > LIVES
    assert reference.check_store(root) == []
