"""The application of ``test_application``: one file, unchanged, for a directory and for every cluster.

``SHOP_MARK`` is part of the names of topics and groups, because tests share a cluster. What a handler is called with is
a line of the file ``SHOP_RECORD``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import orjson

from rmqclient import App, Batch, ReceivedMessage, RetryPolicy, jmespath, sql

MARK = os.environ.get("SHOP_MARK", "shop")
RECORD = Path(os.environ.get("SHOP_RECORD", "record.jsonl"))

app = App("./store")


def named(stem: str) -> str:
    """Return the name of a topic or a group."""
    return f"{stem}-{MARK}"


def record(handler: str, message: ReceivedMessage) -> None:
    """Add a line of its own, which no other process tears."""
    line = {
        "handler": handler,
        "pid": os.getpid(),
        "at": time.time(),
        "body": message.body.decode(),
        "attempt": message.delivery_attempt,
        "queue": [message.queue.broker_name, message.queue_id],
        "offset": message.queue_offset,
        "key": message.sharding_key,
        "id": message.message_id,
    }
    descriptor = os.open(RECORD, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, orjson.dumps(line) + b"\n")
    finally:
        os.close(descriptor)


@app.handler(named("Orders"), group=named("billing"), tags="paid || refunded", threads=2)
def bill(message: ReceivedMessage) -> None:
    record("bill", message)


@app.handler(named("Orders"), group=named("cheap"), filter=sql("total < 10"))
def cheap(message: ReceivedMessage) -> None:
    record("cheap", message)


@app.handler(named("Orders"), group=named("large"), filter=jmespath("items > `5`"))
def large(message: ReceivedMessage) -> None:
    record("large", message)


@app.handler(named("Orders"), group=named("lists"), batch=Batch(8, linger=0.05))
def lists(messages: list[ReceivedMessage]) -> None:
    for message in messages:
        record("lists", message)


@app.handler(named("Steps"), group=named("steps"), order="queue", threads=2)
def steps(message: ReceivedMessage) -> None:
    record("steps", message)
    if message.body.endswith(b"7") and message.delivery_attempt < 3:
        raise RuntimeError("the third time")


@app.handler(named("Steps"), group=named("by-key"), order="key", threads=4)
def by_key(message: ReceivedMessage) -> None:
    record("by_key", message)
    if message.body.endswith(b"5") and message.delivery_attempt < 2:
        raise RuntimeError("the second time")


@app.handler(named("Hard"), group=named("trying"), retry=RetryPolicy(max_retries=2, delay_levels=(1,)))
def trying(message: ReceivedMessage) -> None:
    record("trying", message)
    if message.delivery_attempt < int(message.body):
        raise RuntimeError("later")


@app.handler(named("News"), group=named("readers"), broadcast=True)
def news(message: ReceivedMessage) -> None:
    record("news", message)


@app.handler(named("Questions"), group=named("answering"), replies=True)
def answer(message: ReceivedMessage) -> bytes:
    record("answer", message)
    return message.body.upper()


@app.schedule(every=1, topic=named("Ticks"), name="tick")
def tick() -> str:
    return "tick"


@app.handler(named("Ticks"), group=named("ticks"))
def ticked(message: ReceivedMessage) -> None:
    record("ticked", message)
