"""The processes of the test of tables: senders that never stop, and one that follows and tells what it knows.

``python -m tests.crash.processes.child_table send ROOT SEED`` sends updates of a few keys until it is killed. ``...
follow ROOT`` has a table, and answers each line of its standard input with what is in it, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from rmqclient import Message, Producer, Table

TOPIC = "prices"
QUEUES = 3
KEYS = 60


def send(root: Path, seed: int) -> None:
    """Send for ever, with no thought for queues: values, deletions, batches."""
    chosen = random.Random(seed)
    with Producer(root) as producer:
        while True:
            updates = [_update(chosen, seed) for _ in range(chosen.choice([1, 1, 1, 7]))]
            producer.send_batch(updates)


def _update(chosen: random.Random, seed: int) -> Message:
    body = b"" if chosen.random() < 0.1 else b"%d %d" % (seed, chosen.randrange(1 << 30)) * chosen.randrange(1, 9)
    return Message(TOPIC, body, keys=f"key-{chosen.randrange(KEYS)}")


def follow(root: Path) -> None:
    """Tell what the table has, whenever somebody asks."""
    with Table(root, TOPIC) as table:
        for _ in sys.stdin:
            table.wait_until_caught_up()
            print(json.dumps({key: value.decode() for key, value in table.items()}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        follow(Path(sys.argv[2]))
