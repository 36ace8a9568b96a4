"""A store that this library writes: three topics, rolled files, a group on its way.

``python -m tests.interop.our_store ROOT close`` leaves it clean; with ``stay`` it says "ready" on standard output and
waits to be killed.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from rmqclient import App, Message, Producer, ReceivedMessage, StoreConfig
from rmqclient.admin import open_store
from rmqclient.push_consumer import PushConsumer
from store import MessageStore, config_file

CONFIG = StoreConfig(
    commit_log_file_bytes=128 << 10,
    max_body_bytes=8 << 10,
    consume_queue_file_entries=64,
    offset_persist_interval_ms=100,
)
"""Small files, so that the log and the queues have several."""

TOPICS = {"orders": 4, "payments": 2, "audit": 1}
GROUP = "billing"
MESSAGES = 1_500
ORDERS_HANDLED = 220


def message(number: int) -> Message:
    """Return message ``number``: of three topics, with and without a tag, keys, properties and a body.

    Orders have a body each: the push consumer of RocketMQ 4.9 never gets past a message without one.
    """
    topic = list(TOPICS)[number % 3]
    body = f"message {number} naïve 中文 ".encode() * (number * 7 % 23 + (topic == "orders"))
    return Message(
        topic,
        body,
        tags=f"tag{number % 4}" if number % 5 else None,
        keys=[f"k{number}", f"shared{number % 50}"] if number % 4 else (),
        properties={"number": str(number), "город": "Köln"} if number % 7 else None,
        flag=number,
    )


def write(root: Path) -> MessageStore:
    """Fill a store and let the group handle some of its orders; return it, open."""
    store = open_store(root, CONFIG)
    with Producer(store) as producer:
        for topic, queue_count in TOPICS.items():
            producer.create_topic(topic, queue_count)
        for number in range(MESSAGES):
            producer.send(message(number))
        producer.send_batch([message(number) for number in range(0, 30, 3)])
    handle_orders(store)
    return store


def handle_orders(store: MessageStore) -> None:
    """Handle so many messages, and fail with all others, until the group leaves."""
    logging.getLogger("rmqclient").setLevel(logging.CRITICAL)  # every failure is reported, and these are meant
    app = App()
    left = threading.Semaphore(ORDERS_HANDLED)
    handled = threading.Semaphore(0)

    @app.handler("orders", group=GROUP)
    def handle(_: ReceivedMessage) -> None:
        if not left.acquire(blocking=False):
            raise ValueError("enough for now")
        handled.release()

    consumer = PushConsumer(store, app.handlers)
    consumer.start()
    for _ in range(ORDERS_HANDLED):
        assert handled.acquire(timeout=30)
    consumer.stop_taking()
    assert consumer.drain(10) == 0
    consumer.close()


def wait_until_persisted(store: MessageStore) -> None:
    """Wait until the housekeeper has written the group's progress."""
    queues = [slot for slot in store.groups if slot.group == GROUP]
    deadline = time.monotonic() + 30
    while True:
        on_disk = config_file.read_consumer_offsets(store.root).get(("orders", GROUP), {})
        if on_disk == {store.topics.queue(slot.queue_slot).queue_id: slot.committed_offset for slot in queues}:
            return
        assert time.monotonic() < deadline, on_disk
        time.sleep(0.02)


if __name__ == "__main__":
    written = write(Path(sys.argv[1]))
    if sys.argv[2] == "stay":
        wait_until_persisted(written)
        os.write(1, b"ready\n")
        signal.pause()
    written.close()
