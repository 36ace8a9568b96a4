"""A member that keeps an order.

``python -m tests.groups.processes.ordered_member ROOT JOURNAL ORDER LEASE_MS PAUSE_MS``

ORDER is ``queue`` or ``key``. Bodies are ``LANE NUMBER``, of the queue or of the key, and a third word for what the
handler does: ``fail`` raises up to the fourth attempt, ``die`` kills the process in the first three, ``wait`` lasts
until the file JOURNAL.go exists. All members write into one journal, see :mod:`tests.groups.order`. SIGTERM ends it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from rmqclient import App, ReceivedMessage
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store

TOPIC, GROUP = "orders", "billing"


def main(root: str, journal_path: str, order: str, lease_ms: int, pause_ms: float) -> None:
    """Consume until SIGTERM."""
    journal = os.open(journal_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    go_on = Path(f"{journal_path}.go")
    pid = os.getpid()

    def write(*words: object) -> None:
        os.write(journal, (" ".join(map(str, words)) + "\n").encode())

    app = App(root)

    @app.handler(TOPIC, group=GROUP, threads=4, order="key" if order == "key" else "queue")
    def handle(message: ReceivedMessage) -> None:
        lane, number, *todo = message.body.decode().split()
        write(pid, "start", lane, number, message.delivery_attempt)
        if pause_ms:
            time.sleep(pause_ms / 1000)
        if todo == ["die"] and message.delivery_attempt <= 3:
            os.kill(pid, signal.SIGKILL)
        while todo == ["wait"] and not go_on.exists():
            time.sleep(0.01)
        if todo == ["fail"] and message.delivery_attempt <= 4:
            write(pid, "fail", lane, number, message.delivery_attempt)
            raise RuntimeError("not yet")
        write(pid, "end", lane, number)

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with open_store(Path(root)) as store:
        config = ConsumerConfig(lease_ms=lease_ms, liveness_interval_ms=min(250, lease_ms // 4), suspend_ms=100)
        consumer = PushConsumer(store, app.handlers, config=config)
        consumer.start()
        write(pid, "ready")
        ended.wait()
        consumer.stop_taking()
        consumer.drain(10)
        write(pid, "refused", sum(subscription.delivery.counters.refused for subscription in consumer.subscriptions))
        consumer.close()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(arguments[0], arguments[1], arguments[2], int(arguments[3]), float(arguments[4]))
