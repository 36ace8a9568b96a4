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

===========================================  =========================================================================
``app``, ``handler``                         what an application declares
``sending``                                  producers, transactions, requests
``consuming``, ``delivery``                  consumers, and the way of a message to the call of its handler
``calling``                                  what surrounds this call
``failures``, ``filters``, ``allocation``    what follows a failure, which messages are wanted, who gets which queue
``schedules``, ``databases``, ``tables``     messages by the clock, outbox and inbox, a topic as a mapping
``backend``                                  what producers and consumers ask of the place that keeps the messages
``admin``                                    what the command line shows and changes
``archive``, ``spark``                       what reads and writes the files of a store beside its users
``steps``, ``tracing``                       results of durable steps; spans around sends and handlers
``opening``, ``local``, ``cluster``          the backend for a name: a directory of this host, or a cluster
``metrics``, ``health``, ``dashboard``       what a store counts, what is wrong with it, and both in a browser
``frameworks``, ``live``, ``testing``        Django and others; handlers while they are written; handlers under test
``store``, ``remoting``                      packages of their own: the log on disk; RocketMQ's protocol
``replication``, ``broker``, ``workers``     a second host; ``rmq serve``; the command ``rmq``
===========================================  =========================================================================

Applications use the names of this module, :mod:`rmqclient.errors`, :mod:`rmqclient.allocation`,
:mod:`rmqclient.metrics`, :mod:`rmqclient.testing`, :mod:`rmqclient.frameworks` and :mod:`rmqclient.spark`.

A name is imported when it is first used: the command ``rmq --help``, which lies in :mod:`rmqclient.workers`, is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqclient.app import App
    from rmqclient.backend.futures import SendFuture
    from rmqclient.backend.pull_result import PullResult, PullStatus
    from rmqclient.calling.current import MessageFields, current_message
    from rmqclient.calling.dependencies import Depends
    from rmqclient.calling.hooks import HandlerCall
    from rmqclient.consumer_config import ConsumerConfig
    from rmqclient.consuming.pull_consumer import PullConsumer
    from rmqclient.consuming.push_consumer import PushConsumer
    from rmqclient.databases.inbox import Inbox
    from rmqclient.databases.outbox import Outbox
    from rmqclient.databases.relay import Relay
    from rmqclient.failures.retry import RetryPolicy
    from rmqclient.failures.suspend import Suspend
    from rmqclient.filters import jmespath, sql
    from rmqclient.handler import Batch
    from rmqclient.message import Message, ReceivedMessage, SendResult
    from rmqclient.sending.middleware import Sending
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

    __version__: str
    """As the installed distribution tells it."""

__all__ = [
    "App",
    "Batch",
    "CompactionConfig",
    "Compression",
    "ConsumerConfig",
    "Decision",
    "Depends",
    "Durability",
    "FlushConfig",
    "HandlerCall",
    "Inbox",
    "Message",
    "MessageFields",
    "MessageQueue",
    "Outbox",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "Relay",
    "RequestFuture",
    "RetentionConfig",
    "RetryPolicy",
    "SendFuture",
    "SendResult",
    "Sending",
    "StoreConfig",
    "Suspend",
    "Table",
    "Transaction",
    "TransactionConfig",
    "TransactionProducer",
    "TransactionResult",
    "current_message",
    "jmespath",
    "seconds_left",
    "sql",
]

_HOMES = {
    "App": "rmqclient.app",
    "Batch": "rmqclient.handler",
    "CompactionConfig": "rmqclient.store",
    "Compression": "rmqclient.store.bodies",
    "ConsumerConfig": "rmqclient.consumer_config",
    "Decision": "rmqclient.sending.transaction_producer",
    "Depends": "rmqclient.calling.dependencies",
    "Durability": "rmqclient.store",
    "FlushConfig": "rmqclient.store",
    "HandlerCall": "rmqclient.calling.hooks",
    "Inbox": "rmqclient.databases.inbox",
    "Message": "rmqclient.message",
    "MessageFields": "rmqclient.calling.current",
    "MessageQueue": "rmqclient.store",
    "Outbox": "rmqclient.databases.outbox",
    "Producer": "rmqclient.sending.producer",
    "PullConsumer": "rmqclient.consuming.pull_consumer",
    "PullResult": "rmqclient.backend.pull_result",
    "PullStatus": "rmqclient.backend.pull_result",
    "PushConsumer": "rmqclient.consuming.push_consumer",
    "ReceivedMessage": "rmqclient.message",
    "Relay": "rmqclient.databases.relay",
    "RequestFuture": "rmqclient.sending.request",
    "RetentionConfig": "rmqclient.store",
    "RetryPolicy": "rmqclient.failures.retry",
    "SendFuture": "rmqclient.backend.futures",
    "SendResult": "rmqclient.message",
    "Sending": "rmqclient.sending.middleware",
    "StoreConfig": "rmqclient.store",
    "Suspend": "rmqclient.failures.suspend",
    "Table": "rmqclient.tables.table",
    "Transaction": "rmqclient.sending.transaction_producer",
    "TransactionConfig": "rmqclient.store",
    "TransactionProducer": "rmqclient.sending.transaction_producer",
    "TransactionResult": "rmqclient.sending.transaction_producer",
    "current_message": "rmqclient.calling.current",
    "jmespath": "rmqclient.filters",
    "seconds_left": "rmqclient.sending.reply",
    "sql": "rmqclient.filters",
}
"""The module of each name, which a test compares with the imports above."""

if not TYPE_CHECKING:  # or a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415 - it takes longer to import than most need

            found: object = version("rmqclient")
        elif name in _HOMES:
            found = getattr(importlib.import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found  # next time the name is found without this function
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
