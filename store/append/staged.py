"""Staged records: records that wait in a file of their own until their whole batch may be appended.

Tasks of a Spark job encode rows, and append nothing. A staged record lacks only the fields that the append fills in:
queue offset, commit log offset, store timestamp, CRC, and the first half of its unique key. The file of one task is a
sequence of runs, each of which goes to one queue; big-endian::

    byte  size  field       meaning
    ----  ----  ----------  -------
       0     4  magic       0x524D5153
       4     4  size        bytes of the run, this header included
       8     4  count       staged records in it
      12     4  queue_id    queue of the topic
      16     1  topic_size  bytes of the topic, which follows
    ----  ----
      17

Each staged record of a run follows: 8 bytes of tags code, as its consume queue entry will hold it, 8 bytes with the
number of the row within its part, and the record. A born timestamp of -2**63 stands for the time of the append.

A unique key is 32 hexadecimal digits, as every client of RocketMQ makes them: 16 digits for the batch and the part, and
16 digits with the number of the row. So the log itself says which rows of a batch have landed, at no cost for appends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.config import StoreConfig
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.files.mapped_file import map_file
from rmqclient.store.kernel._kernel import Appender, Landed, Mapping, Stager, append_run, crc32
from rmqclient.store.log import commit_log
from rmqclient.store.log.record import Blank
from rmqclient.store.settings.config_file import read_topics
from rmqclient.store.settings.topic_table import write_queues_of

__all__ = [
    "Landed",
    "Mapping",
    "Stager",
    "append",
    "find_landed",
    "map_whole",
    "queue_counts",
    "stager",
    "unique_prefix",
]

_HOST = bytes((127, 0, 0, 1))
_BROKER_PORT = 10_911


def stager(topic: str | None, part: int, queue_count_of: Callable[[str], int], log_file_bytes: int) -> Stager:
    """Return an encoder for the rows of one part, for a store with commit log files of ``log_file_bytes``."""
    largest_body = log_file_bytes - layout.MAX_RECORD_OVERHEAD - layout.BLANK_RECORD.size
    return Stager(
        queue_count_of,
        topic=topic,
        part=part,
        max_body_bytes=min(StoreConfig().max_body_bytes, largest_body),
        log_file_bytes=log_file_bytes,
        born_host=_HOST + (0).to_bytes(4, "big"),
        store_host=_HOST + _BROKER_PORT.to_bytes(4, "big"),
    )


def queue_counts(root: Path) -> dict[str, int]:
    """Return how many queues of each topic new messages go to, without opening the store. Raises StoreCorrupt."""
    return {topic: write_queues_of(config) for topic, config in read_topics(root).items()}


def unique_prefix(application: str, batch: int, part: int) -> int:
    """Return the first 8 bytes of the unique keys of a part."""
    digest = hashlib.blake2b(f"{application}\0{batch}\0{part}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def map_whole(path: Path, size: int, digest: int) -> Mapping | None:
    """Map a file of staged records; None if it is missing, or differs from what was written."""
    try:
        content = map_file(path, size, writable=False)
    except (FileNotFoundError, StoreCorrupt):
        return None
    return content if crc32(content) == digest else None


def append(appender: Appender, content: Mapping, prefix: int, landed: Landed | None = None) -> int:
    """Append the staged records of one part except those that have landed; return how many.

    Raises what ``Appender.append`` raises. The records before the failure are then in the log.
    """
    position = appended = 0
    while position < len(content):
        position, count = append_run(appender, content, position, prefix, landed)
        appended += count
    return appended


def find_landed(files: FileQueue, begin: int, end: int, parts: list[tuple[int, int]]) -> Landed:
    """Find which rows of the ``parts``, each (unique prefix, rows), stand in the log between two offsets.

    A damaged record counts as missing, because no consumer gets it.
    """
    landed = Landed(parts)
    offset = begin
    while offset < end:
        following = files.base_of(offset) + files.file_bytes
        try:
            reached = commit_log.feed(files, offset, end, landed.look)
            stands = commit_log.LogReader(files).outcome(reached) if reached < min(end, following) else None
        except (FileNotFoundError, StoreCorrupt):
            reached, stands = offset, None
        if isinstance(stands, Blank) or reached >= min(end, following):
            offset = following
        else:
            offset = commit_log.next_record(files, reached + 1, end) or end
    return landed
