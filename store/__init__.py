"""The durable log: RocketMQ 4.9's files, shared by the processes of one host.

=============  =====================================================================================================
``kernel``     the compiled part: appends, grants, acknowledgements, and every loop over bytes
``files``      what a store lies on: mapped files, rows of files, byte locks
``log``        the messages: records, commit log, consume queues, index
``settings``   what a store keeps beside the messages: settings, topics, offsets, the checkpoint
``runtime``    what processes share while they run: groups, members, running messages, workers, bells
``append``     what an append needs around the kernel
``upkeep``     the housekeeper's work: flushing, retention, compaction
``waiting``    messages that wait: for a time, for a decision, or for being the only one of their key
``recovery``   from a directory that was left anyhow to a store that can be used
``inspect``    a store read without locks: views, dumps, invariants
``handles``    what producers and consumers hold: appenders and grants
``samples``    what the processes share, read in one look
=============  =====================================================================================================

``wire`` reads records that a broker sent, and writes what a client sends to it.
:func:`open_store` opens a directory, and :class:`MessageStore` hands out everything else. :mod:`rmqclient.store.layout`
declares every layout of bytes, once. Other packages use the names that this module exports, and single names of the
rooms that read messages and files. Of ``runtime`` they use only what stands here; the client's local backend may use
more.
"""

from __future__ import annotations

from rmqclient.store import layout
from rmqclient.store.config import (
    CompactionConfig,
    Durability,
    FlushConfig,
    RetentionConfig,
    StoreConfig,
    TransactionConfig,
)
from rmqclient.store.files import fork
from rmqclient.store.kernel import _kernel
from rmqclient.store.kernel._kernel import (
    DELAYS,
    HALF_TOPIC,
    OPERATION_TOPIC,
    RESERVED_PROPERTIES,
    SCHEDULE_TOPIC,
    STOPPED,
    TIMER_TOPIC,
    Appender,
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
    give_steps,
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
from rmqclient.store.runtime.client_id import check_client_id, default_client_id
from rmqclient.store.runtime.members import Member, MemberInfo, MemberTable, Seat
from rmqclient.store.runtime.running import Interrupted
from rmqclient.store.runtime.worker_table import WorkerSlot, WorkerState, WorkerStatus, WorkerTable
from rmqclient.store.threads.signals import take_no_signals
from rmqclient.store.wire import (
    OffsetId,
    ReadStatus,
    decode_records,
    encode_batch,
    encode_each,
    encode_properties,
    new_message_id,
    parse_offset_id,
    sent_results,
)

__all__ = [
    "ACK_WINDOW",
    "CRC_PROPERTY_SIZE",
    "DELAYS",
    "HALF_TOPIC",
    "LONGEST_SLEEP_S",
    "MAX_PROPERTIES_BYTES",
    "OPERATION_TOPIC",
    "RESERVED_PROPERTIES",
    "SCHEDULE_TOPIC",
    "STOPPED",
    "TIMER_TOPIC",
    "Appender",
    "ArrivalBell",
    "Bell",
    "Collector",
    "ColumnBuffer",
    "Columns",
    "CompactionConfig",
    "Durability",
    "FlushConfig",
    "Interrupted",
    "Member",
    "MemberInfo",
    "MemberTable",
    "Message",
    "MessageQueue",
    "MessageStore",
    "OffsetId",
    "PlainSends",
    "QueueGrant",
    "ReadStatus",
    "ReceivedMessage",
    "RecordReader",
    "RetentionConfig",
    "Running",
    "Seat",
    "SendResult",
    "StoreConfig",
    "TagSet",
    "TransactionConfig",
    "WorkerSlot",
    "WorkerState",
    "WorkerStatus",
    "WorkerTable",
    "append_received",
    "append_received_batch",
    "boottime",
    "check_client_id",
    "decode_records",
    "default_client_id",
    "delay_ms",
    "encode_batch",
    "encode_each",
    "encode_properties",
    "fork",
    "give_steps",
    "java_hash",
    "limit_resident",
    "new_message_id",
    "open_store",
    "parse_offset_id",
    "running_in",
    "sent_results",
    "stored_message",
    "take_no_signals",
    "use_one_heap",
]


if _kernel.FINGERPRINT != layout.LAYOUT_FINGERPRINT:
    raise ImportError(
        "rmqclient.store.kernel._kernel was built for another layout: run `make install` to build it again"
    )
