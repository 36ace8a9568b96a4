"""Who sends, handles and reads for the rig of memory.

``python -m tests.torture.wholes.child_memory send ROOT`` sends at a steady rate until standard input ends, and
``read URL`` follows the log from its begin, as a member of a group over a server. Each prints how many messages there
were.
"""

from __future__ import annotations

import select
import sys
import time
from collections import Counter

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import StoreConfig

TOPIC = "memory"
GROUPS = ("local", "remote")
PER_SECOND = 60_000
CONFIG = StoreConfig(commit_log_file_bytes=16 << 20, max_body_bytes=1 << 20, index_entries=100_000)
"""Small files: what a process keeps of each it has passed shows sooner."""
_BATCH = 100

app = App()


@app.handler(TOPIC, group=GROUPS[0])
def handle(_message: ReceivedMessage) -> None:
    """Do nothing; what is looked at is where the pages of the message stay."""


def send(root: str) -> int:
    """Send with keys, so that the index grows, too, until the parent lets go."""
    sent, began, body = 0, time.monotonic(), bytes(100)
    with Producer(root, config=CONFIG) as producer:
        while not _is_over((sent + _BATCH) / PER_SECOND - (time.monotonic() - began)):
            producer.send_batch([Message(TOPIC, body, keys=str(sent + number)) for number in range(_BATCH)])
            sent += _BATCH
    return sent


def read(url: str) -> int:
    """Handle everything over a server until the parent lets go."""
    found = Counter[str]()
    far = App(url)

    @far.handler(TOPIC, group=GROUPS[1])
    def count(_message: ReceivedMessage) -> None:
        found["messages"] += 1

    consumer = PushConsumer(url, far.handlers)
    consumer.start()
    while not _is_over(1.0):
        pass
    consumer.stop_taking()
    consumer.drain(10)
    consumer.close()
    return found["messages"]


def _is_over(wait_s: float) -> bool:
    return bool(select.select([sys.stdin], [], [], max(0.0, wait_s))[0])


if __name__ == "__main__":
    print({"send": send, "read": read}[sys.argv[1]](sys.argv[2]), flush=True)
