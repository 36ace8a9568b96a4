"""A message queue with RocketMQ's semantics and no server.

::

    from rmqclient import App, Message, Producer

    app = App("./store")

    @app.handler("flights", group="delays", tags="departed || cancelled")
    def count(message):
        ...                       # returning acknowledges; raising asks for another delivery

    with Producer("./store") as producer:
        producer.send(Message("flights", b"...", tags="departed", keys=["UA1545"]), sharding_key="N14228")

Run the handlers with ``rmq run module:app --processes 2``.

Reading order: ``message``, ``names``, ``codecs``, ``producer``; ``app``, ``filters``, ``allocation``, ``group``,
``process_queue``, ``delivery``, ``concurrent_delivery``, ``rebalance``, ``start_position``, ``broadcast``,
``push_consumer``; ``pull_consumer``; ``handler_transfer``,
``worker_table``, ``admin``.
"""

from __future__ import annotations

from rmqclient.app import App
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.producer import Producer
from rmqclient.pull_consumer import PullConsumer, PullResult, PullStatus
from store import Durability, MessageQueue, StoreConfig
from store.errors import (
    BatchTooLarge,
    BodyTooLarge,
    ConfigMismatch,
    DiskFailed,
    HandlerError,
    InvalidName,
    LimitReached,
    MemberExists,
    MessageExpired,
    MessageRejected,
    NotFlushed,
    OffsetOutOfRange,
    PageCacheBusy,
    PropertiesTooLarge,
    QueueError,
    QueueOwned,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreInUse,
    StorePoisoned,
    StoreUnusable,
    TableFull,
    UnknownGroup,
    UnknownTopic,
)

__all__ = [
    "App",
    "BatchTooLarge",
    "BodyTooLarge",
    "ConfigMismatch",
    "DiskFailed",
    "Durability",
    "HandlerError",
    "InvalidName",
    "LimitReached",
    "MemberExists",
    "Message",
    "MessageExpired",
    "MessageQueue",
    "MessageRejected",
    "NotFlushed",
    "OffsetOutOfRange",
    "PageCacheBusy",
    "Producer",
    "PropertiesTooLarge",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "QueueError",
    "QueueOwned",
    "ReceivedMessage",
    "SendResult",
    "StoreBusy",
    "StoreClosed",
    "StoreConfig",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreInUse",
    "StorePoisoned",
    "StoreUnusable",
    "TableFull",
    "UnknownGroup",
    "UnknownTopic",
]
