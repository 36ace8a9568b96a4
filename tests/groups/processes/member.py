"""A consumer process for the tests of groups.

``python -m tests.groups.processes.member ROOT JOURNAL [LEASE_MS] [PAUSE_S] [THREADS] [MODE]``. The handler of a message
``slow`` never returns, that of one whose name begins with ``pausing`` takes four seconds, and that of one whose name
begins with ``held`` ends when a file ``go`` is beside the store; the first attempt of ``held-failing`` raises then.
MODE is ``plain``, ``batch``, ``async``, ``queue`` or ``key``.

It writes a line to JOURNAL, with one ``write``, for each start and end of a handler call, and ``ready`` when its
consumer has started. SIGTERM ends it orderly.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rmqclient import App, Batch, ReceivedMessage
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store

TOPIC, GROUP = "orders", "billing"
SLOW, PAUSING, HELD, FAILING = "slow", "pausing", "held", "held-failing"


def main(
    root: str, journal_path: str, lease_ms: int = 10_000, pause_s: float = 0.0, threads: int = 1, mode: str = "plain"
) -> None:
    """Consume until SIGTERM."""
    go = Path(root).parent / "go"
    journal = os.open(journal_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(*words: object) -> None:
        os.write(journal, (" ".join(map(str, words)) + "\n").encode())

    app = App(root)

    def handle(message: ReceivedMessage) -> None:
        name = message.body.decode()
        write("start", name, message.queue_id, message.queue_offset, message.delivery_attempt)
        if name == SLOW:
            threading.Event().wait()
        while name.startswith(HELD) and not go.exists():
            time.sleep(0.005)
        if name.startswith(FAILING) and message.delivery_attempt == 1:
            raise RuntimeError(name)
        if pause := 4.0 if name.startswith(PAUSING) else pause_s:
            time.sleep(pause)
        write("end", name, message.queue_id, message.queue_offset)

    def handle_batch(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            handle(message)

    async def handle_async(message: ReceivedMessage) -> None:
        await asyncio.to_thread(handle, message)

    functions: dict[str, Any] = {"batch": handle_batch, "async": handle_async}
    options: dict[str, dict[str, Any]] = {
        "batch": {"batch": Batch(4)},
        "async": {"coroutines": 1},
        "queue": {"order": "queue"},
        "key": {"order": "key"},
    }
    app.handler(TOPIC, group=GROUP, threads=threads, **options.get(mode, {}))(functions.get(mode, handle))

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with open_store(Path(root)) as store:
        config = ConsumerConfig(lease_ms=lease_ms, liveness_interval_ms=min(250, lease_ms // 4))
        consumer = PushConsumer(store, app.handlers, config=config)
        consumer.start()
        write("ready")
        ended.wait()
        consumer.stop_taking()
        consumer.drain(10)
        write("refused", sum(subscription.delivery.counters.refused for subscription in consumer.subscriptions))
        consumer.close()


def end_with_parent() -> None:
    """Be killed when the test that started this process ends, however it ends. [PR_SET_PDEATHSIG]"""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent()
    root_, journal_, *arguments = sys.argv[1:]
    kinds: tuple[Any, ...] = (int, float, int, str)
    main(root_, journal_, *(kind(argument) for kind, argument in zip(kinds, arguments, strict=False)))
