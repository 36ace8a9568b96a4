"""Exports: what other packages use of the store, loaded when one of the names is asked of :mod:`rmqclient.store`."""

from __future__ import annotations

from rmqclient.store.config import (
    CompactionConfig,
    Durability,
    FlushConfig,
    RetentionConfig,
    StoreConfig,
    TransactionConfig,
)
from rmqclient.store.files import fork
from rmqclient.store.kernel._kernel import (
    DELAYS,
    HALF_TOPIC,
    OPERATION_TOPIC,
    RESERVED_PROPERTIES,
    SCHEDULE_TOPIC,
    STOPPED,
    TIMER_TOPIC,
    Appender,
    CallContext,
    Collector,
    ColumnBuffer,
    Columns,
    Message,
    PlainSends,
    QueueGrant,
    ReceivedMessage,
    RecordReader,
    Running,
    SendResult,
    TagSet,
    append_received,
    append_received_batch,
    boottime,
    delay_ms,
    handling,
    java_hash,
    limit_resident,
    running_in,
    stored_message,
    use_one_heap,
)
from rmqclient.store.layout import ACK_WINDOW, CRC_PROPERTY_SIZE, MAX_PROPERTIES_BYTES
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.message_store import MessageStore, open_store
from rmqclient.store.runtime.arrivals import LONGEST_SLEEP_S, ArrivalBell, Bell
from rmqclient.store.runtime.awake import Awake, Pauses
from rmqclient.store.runtime.client_id import check_client_id, default_client_id
from rmqclient.store.runtime.lending import LentMessages
from rmqclient.store.runtime.members import Member, MemberTable
from rmqclient.store.runtime.rows import NOT_STRAINED, MemberInfo, Strained, WorkerState, WorkerStatus
from rmqclient.store.runtime.running import Interrupted
from rmqclient.store.threads.signals import take_no_signals

__all__ = [
    "ACK_WINDOW",
    "CRC_PROPERTY_SIZE",
    "DELAYS",
    "HALF_TOPIC",
    "LONGEST_SLEEP_S",
    "MAX_PROPERTIES_BYTES",
    "NOT_STRAINED",
    "OPERATION_TOPIC",
    "RESERVED_PROPERTIES",
    "SCHEDULE_TOPIC",
    "STOPPED",
    "TIMER_TOPIC",
    "Appender",
    "ArrivalBell",
    "Awake",
    "Bell",
    "CallContext",
    "Collector",
    "ColumnBuffer",
    "Columns",
    "CompactionConfig",
    "Durability",
    "FlushConfig",
    "Interrupted",
    "LentMessages",
    "Member",
    "MemberInfo",
    "MemberTable",
    "Message",
    "MessageQueue",
    "MessageStore",
    "Pauses",
    "PlainSends",
    "QueueGrant",
    "ReceivedMessage",
    "RecordReader",
    "RetentionConfig",
    "Running",
    "SendResult",
    "StoreConfig",
    "Strained",
    "TagSet",
    "TransactionConfig",
    "WorkerState",
    "WorkerStatus",
    "append_received",
    "append_received_batch",
    "boottime",
    "check_client_id",
    "default_client_id",
    "delay_ms",
    "fork",
    "handling",
    "java_hash",
    "limit_resident",
    "open_store",
    "running_in",
    "stored_message",
    "take_no_signals",
    "use_one_heap",
]
