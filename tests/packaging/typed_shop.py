"""An application with types, which type checkers read beside the installed package: nothing here may be unknown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from rmqclient import (
    App,
    Batch,
    HandlerCall,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RetryPolicy,
    SendResult,
    StoreConfig,
    current_message,
    jmespath,
    sql,
)


@dataclass
class Order:
    number: str
    total: float


app = App("./store", config=StoreConfig.small())


@app.handler("orders", group="billing", tags="paid", retry=RetryPolicy(max_retries=5, delays=(1.0, 30.0)))
def bill(order: Order, message: ReceivedMessage) -> None:
    assert_type(message.delivery_attempt, int)
    assert_type(message.body, bytes)
    assert_type(current_message(), ReceivedMessage | None)


@app.handler("orders", group="mail", filter=(sql("total > 100"), jmespath("number")))
async def write(order: Order) -> None: ...


@app.handler("clicks", group="reports", batch=Batch(100, linger=0.005))
def count(clicks: list[Order]) -> None: ...


@app.schedule("*/5 * * * *", topic="reports")
def report() -> dict[str, int]:
    return {"orders": 0}


@app.middleware
def timed(call: HandlerCall) -> Iterator[None]:
    assert_type(call.message, ReceivedMessage)
    yield


def send() -> None:
    with Producer("./store") as producer:
        assert_type(producer.send("orders", Order("A-17", 12.5), key="A-17", delay=timedelta(days=1)), SendResult)
        assert_type(producer.send(Message("orders", b"7")).message_id, str)
    with app.running() as consumer:
        assert_type(consumer, PushConsumer)
    with PullConsumer("./store", group="reports") as reader:
        for message in reader.messages("orders", wait=0):
            assert_type(message, ReceivedMessage)


assert_type(bill(Order("A-17", 12.5), ReceivedMessage.__new__(ReceivedMessage)), None)
