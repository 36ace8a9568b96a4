"""Dispatch: what is derived from the commit log is made again from it.

While the store is open, the append itself writes the consume queue entries. Recovery dispatches the records whose
entries may be missing. Doing it twice changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from store import commit_log
from store.consume_queue import ConsumeQueues, Entry
from store.file_queue import FileQueue
from store.message_queue import MessageQueue
from store.record import ReceivedMessage, Record

_TRANSACTION_MASK = 0xC
_TRANSACTION_PREPARED = 0x4
_TRANSACTION_ROLLBACK = 0xC


@dataclass(slots=True)
class Dispatched:
    """What a dispatch did."""

    records: int = 0
    entries_written: int = 0
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    """Queue offset after the last dispatched message, by queue."""


def dispatch(log_files: FileQueue, consume_queues: ConsumeQueues, ranges: list[tuple[int, int]]) -> Dispatched:
    """Write the consume queue entries of all records in ``ranges``, where they are not right already.

    A range begins at a record.
    """
    done = Dispatched()
    for start, end in ranges:
        for offset, outcome in commit_log.walk(log_files, start, end):
            if isinstance(outcome, Record):
                _dispatch_record(consume_queues, offset, outcome, done)
    return done


def has_entry(message: ReceivedMessage) -> bool:
    """Tell whether a record has a consume queue entry: one of a prepared or rolled back transaction has none.

    CommitLogDispatcherBuildConsumeQueue of DefaultMessageStore.
    """
    return message.sys_flag & _TRANSACTION_MASK not in (_TRANSACTION_PREPARED, _TRANSACTION_ROLLBACK)


def _dispatch_record(consume_queues: ConsumeQueues, offset: int, record: Record, done: Dispatched) -> None:
    message = record.message
    done.records += 1
    if not has_entry(message):
        return
    queue = MessageQueue(message.topic, message.queue_id)
    entry = Entry(offset, record.size, message.tags_code)
    if _present(consume_queues, queue, message.queue_offset) != entry:
        consume_queues[queue].write(message.queue_offset, entry)
        done.entries_written += 1
    done.ends[queue] = max(done.ends.get(queue, 0), message.queue_offset + 1)


def _present(consume_queues: ConsumeQueues, queue: MessageQueue, queue_offset: int) -> Entry | None:
    try:
        return consume_queues[queue].entry(queue_offset)
    except FileNotFoundError:
        return None
