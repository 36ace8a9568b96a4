"""A store that this library writes: three topics, rolled files, a group on its way.

``python -m tests.interop.our_store ROOT close`` leaves it clean; with ``stay`` it waits to be killed. When everything
is there it prints one line of JSON: by queue id, how many of its messages were handled for the group.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import orjson

from rmqclient import App, Message, Producer, ReceivedMessage, StoreConfig, Transaction, TransactionProducer
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import MessageStore, open_store
from rmqclient.store.settings import config_file
from tests.support.stores import in_an_hour

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


def write(root: Path) -> tuple[MessageStore, dict[int, int]]:
    """Fill a store and let the group handle some of its orders; return it, open, and how many of each queue."""
    store = open_store(root, CONFIG)
    with Producer(store) as producer:
        for topic, queue_count in TOPICS.items():
            producer.create_topic(topic, queue_count)
        for number in range(MESSAGES):
            producer.send(message(number))
        producer.send_batch([message(number) for number in range(0, 30, 3)])
    return store, handle_orders(store)


def handle_orders(store: MessageStore) -> dict[int, int]:
    """Handle so many messages, and fail with all others; return how many were handled of each queue.

    In order: then one that fails waits where it is, and is not stored again for its retry.

    Told by the handler alone, so that it is not the store's own word that is compared with RocketMQ's.
    """
    logging.getLogger("rmqclient").setLevel(logging.CRITICAL)  # every failure is reported, and these are meant
    app = App()
    left = threading.Semaphore(ORDERS_HANDLED)
    done = threading.Semaphore(0)
    handled: list[ReceivedMessage] = []

    @app.handler("orders", group=GROUP, order="queue")
    def handle(message: ReceivedMessage) -> None:
        if not left.acquire(blocking=False):
            raise ValueError("enough for now")
        handled.append(message)
        done.release()

    consumer = PushConsumer(store, app.handlers)
    consumer.start()
    for _ in range(ORDERS_HANDLED):
        assert done.acquire(timeout=30)
    consumer.stop_taking()
    assert consumer.drain(10) == 0
    consumer.close()
    counted = Counter(message.queue_id for message in handled)
    # Each queue was handled from its first message on, so that the count is also the offset to go on from
    for queue_id, count in counted.items():
        assert {message.queue_offset for message in handled if message.queue_id == queue_id} == set(range(count))
    return {queue_id: counted[queue_id] for queue_id in range(TOPICS["orders"])}


def wait_until_persisted(store: MessageStore, handled: dict[int, int]) -> None:
    """Wait until the housekeeper has written the group's progress."""
    deadline = time.monotonic() + 30
    while config_file.read_consumer_offsets(store.root).get(("orders", GROUP), {}) != handled:
        assert time.monotonic() < deadline, f"not what is in {config_file.CONSUMER_OFFSETS_FILE}: {handled}"
        time.sleep(0.02)


DELAYED = "delayed"
DELIVERED_HERE = [b"delivered here %d" % number for number in range(3)]
DUE_SOON = [b"due soon %d" % number for number in range(8)]
DUE_LATER = b"due later"


def write_delayed(root: Path) -> None:
    """Make a store in which some delayed messages were delivered and others wait, in levels 1, 2, 3 and 14."""
    with open_store(root, CONFIG, housekeeping=False) as store, Producer(store) as producer:
        producer.create_topic(DELAYED, 2)
        for body in DELIVERED_HERE:
            producer.send(Message(DELAYED, body), delay_level=1)
        deadline = time.monotonic() + 30
        while store.schedule.next_offset(1) < len(DELIVERED_HERE):
            assert time.monotonic() < deadline
            time.sleep(store.schedule.look() / 1000)
        for number, body in enumerate(DUE_SOON[:5]):
            message = Message(DELAYED, body, tags="soon", keys=[f"k{number}"], properties={"number": str(number)})
            producer.send(message, "key" if number == 4 else None, delay_level=1 + number % 3)
        producer.send_batch([Message(DELAYED, body) for body in DUE_SOON[5:]], delay_level=2)
        producer.send(Message(DELAYED, DUE_LATER), delay_level=14)


TRANSACTIONS = "transactions"
PRODUCERS = "transacting"
DECIDED = [b"commit here", b"rollback here"]
PENDING = [b"commit fresh", b"rollback fresh", b"commit renewed", b"rollback renewed"]


def write_transactions(root: Path) -> None:
    """Make a store in which some transactions are decided, and some are pending, half of them renewed by a check."""
    with open_store(root, CONFIG, housekeeping=False) as store, TransactionProducer(store, group=PRODUCERS) as producer:
        producer.create_topic(TRANSACTIONS, 1)
        begun = {body: begin(producer, body) for body in (*DECIDED, *PENDING[2:])}
        store.transactions.now_ms = in_an_hour
        store.transactions.check()
        begun[DECIDED[0]].commit()
        begun[DECIDED[1]].rollback()
        for body in PENDING[:2]:
            begin(producer, body)


def begin(producer: TransactionProducer, body: bytes) -> Transaction:
    """Store one half message."""
    message = Message(TRANSACTIONS, body, tags="half", keys=[f"key-{body.decode().replace(' ', '-')}"], flag=7)
    return producer.transaction(message)


if __name__ == "__main__":
    written, offsets = write(Path(sys.argv[1]))
    if sys.argv[2] == "stay":
        wait_until_persisted(written, offsets)
    else:
        written.close()
    os.write(1, orjson.dumps({str(queue_id): count for queue_id, count in offsets.items()}) + b"\n")
    if sys.argv[2] == "stay":
        signal.pause()
