"""A consumer process whose messages may kill it: ``python -m tests.groups.processes.neighbours ROOT JOURNAL MODE``.

Several messages run side by side. One whose body begins with ``bad`` kills the process after 0.3 s; a good one takes
0.6 s. It writes a line to JOURNAL, with one ``write``, for each start and end of a call.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rmqclient import App, Batch, ReceivedMessage, RetryPolicy
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store
from tests.groups.processes.member import end_with_parent

GROUP = "billing"
MODES: dict[str, dict[str, Any]] = {
    "plain": {"threads": 4},
    "batch": {"threads": 4, "batch": Batch(2)},
    "key": {"threads": 4, "order": "key", "retry": RetryPolicy(max_retries=2)},
    "coroutines": {},
    "two handlers": {"threads": 2},
}
RETRIES = RetryPolicy(max_retries=2, delays=(0.1,))


def main(root: str, journal_path: str, mode: str) -> None:
    """Consume until killed."""
    journal = os.open(journal_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    app = App(root)

    def begin(message: ReceivedMessage) -> float:
        name = message.body.decode()
        os.write(journal, f"begin {name}\n".encode())
        return 0.3 if name.startswith("bad") else 0.6

    def end(message: ReceivedMessage) -> None:
        name = message.body.decode()
        if name.startswith("bad"):
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(journal, f"end {name}\n".encode())

    def plain(message: ReceivedMessage) -> None:
        time.sleep(begin(message))
        end(message)

    def batch(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            plain(message)

    async def coroutine(message: ReceivedMessage) -> None:
        await asyncio.sleep(begin(message))
        end(message)

    function: Any = {"batch": batch, "coroutines": coroutine}.get(mode, plain)
    for topic in ["orders", "refunds"] if mode == "two handlers" else ["orders"]:
        app.handler(topic, group=GROUP, **({"retry": RETRIES} | MODES[mode]))(function)
    with open_store(Path(root)) as store:
        PushConsumer(store, app.handlers, config=ConsumerConfig(lease_ms=2_000, liveness_interval_ms=250)).start()
        while True:
            signal.pause()


if __name__ == "__main__":
    end_with_parent()
    main(*sys.argv[1:])
