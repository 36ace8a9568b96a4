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

Reading order: ``message``, ``names``, ``codecs``, ``producer``, ``request``, ``reply``; ``cron``, ``cron_sender``;
``retry``, ``app``, ``filters``, ``allocation``, ``running``, ``group``, ``process_queue``, ``delivery``,
``concurrent_delivery``, ``batch_delivery``, ``suspension``, ``orderly_delivery``, ``key_ordered_delivery``,
``rebalance``, ``retry_topic``, ``start_position``, ``broadcast``, ``push_consumer``; ``pull_consumer``;
``table_updates``, ``table``, ``app_table``; ``transaction_producer``; ``handler_transfer``, ``worker_table``,
``admin``.
"""

from __future__ import annotations

from rmqclient.app import App
from rmqclient.consuming.pull_consumer import PullConsumer, PullResult, PullStatus
from rmqclient.delivery.suspension import Suspend
from rmqclient.failures.retry import RetryPolicy
from rmqclient.filters import jmespath, sql
from rmqclient.handler import Batch
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.sending.producer import Producer
from rmqclient.sending.reply import seconds_left
from rmqclient.sending.request import RequestFuture
from rmqclient.sending.transaction_producer import Decision, Transaction, TransactionProducer, TransactionResult
from rmqclient.store import (
    CompactionConfig,
    Durability,
    FlushConfig,
    MessageQueue,
    RetentionConfig,
    StoreConfig,
    TransactionConfig,
)
from rmqclient.store.bodies import Compression
from rmqclient.tables.table import Table

__all__ = [
    "App",
    "Batch",
    "CompactionConfig",
    "Compression",
    "Decision",
    "Durability",
    "FlushConfig",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "ReceivedMessage",
    "RequestFuture",
    "RetentionConfig",
    "RetryPolicy",
    "SendResult",
    "StoreConfig",
    "Suspend",
    "Table",
    "Transaction",
    "TransactionConfig",
    "TransactionProducer",
    "TransactionResult",
    "jmespath",
    "seconds_left",
    "sql",
]
