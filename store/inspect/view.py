"""View: read access to the records of a store, whether its files are local or elsewhere.

:class:`LocalView` reads the files of a store directory as they stand: closed, open in other processes, or a RocketMQ
broker's. It takes no lock and changes no byte. Copies elsewhere have views of their own, with the same methods.

A queue ends with its last entry; each entry was written after its record. In an open store nothing beyond
``published_to`` is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from rmqclient.store import layout
from rmqclient.store.files.file_queue import FileQueue, MappingCache
from rmqclient.store.inspect.reading import open_reader
from rmqclient.store.kernel._kernel import Mapping
from rmqclient.store.log import commit_log
from rmqclient.store.log.consume_queue import ConsumeQueues, Entry
from rmqclient.store.log.inner_batch import stated_messages
from rmqclient.store.log.record import Record, decode
from rmqclient.store.log.sizes import settings_of
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.settings import removed_topics

_ENTRY = layout.CONSUME_QUEUE_ENTRY
_MAPPED_FILES = 64
_RECORD_HEAD_BYTES = 4_096
"""Bytes that hold most records whole."""

Buffer: TypeAlias = bytes | bytearray | memoryview | Mapping


class LogPart(NamedTuple):
    """Some bytes of one commit log file."""

    content: Buffer
    base: int
    """The commit log offset of the first of them."""
    file_end: int
    """The commit log offset where their file ends."""


class View(Protocol):
    """The records of a store. For one thread."""

    log_file_bytes: int
    entries_per_file: int

    def queues(self) -> list[MessageQueue]:
        """Return every queue that has entries or had some, sorted."""

    def offsets(self, queue: MessageQueue) -> range:
        """Return the queue offsets of the messages that are there now; empty for a queue that is not known."""

    def ranges(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, range]:
        """Return what :meth:`offsets` returns of each queue, all of one moment where the files are local."""

    def log_range(self) -> range:
        """Return the commit log offsets from the oldest byte to the end of what may be looked at now."""

    def entries(self, queue: MessageQueue, first: int, stop: int) -> bytes:
        """Return entries from ``first`` on, 20 bytes each: up to ``stop``, or to the end of the file that holds it.

        Raises FileNotFoundError, StoreCorrupt.
        """

    def log(self, commit_log_offset: int, size: int) -> LogPart:
        """Return a part of the log that holds ``size`` bytes from an offset on, or as many as its file has.

        Raises FileNotFoundError, StoreCorrupt.
        """

    def release(self) -> None:
        """Let go of files that were removed meanwhile. Parts that were returned must not be used any more."""


class LocalView:
    """The store in the directory ``root``.

    Raises StoreUnusable if there is none, ConfigMismatch for one of another version.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        settings = settings_of(root)
        self.log_file_bytes = settings.commit_log_file_bytes
        self.entries_per_file = settings.consume_queue_file_entries
        self._mappings = MappingCache(_MAPPED_FILES, writable=False, any_size=True)
        self._log_files = FileQueue(
            root / commit_log.DIRECTORY, self.log_file_bytes, scratch=root, mappings=self._mappings
        )
        self._consume_queues = ConsumeQueues(root, self.entries_per_file * _ENTRY.size, self._mappings)

    def queues(self) -> list[MessageQueue]:
        """Return every queue that has a directory, sorted."""
        return self._consume_queues.on_disk()

    def offsets(self, queue: MessageQueue) -> range:
        """Return the queue offsets of the messages that are there now; empty for a queue that is not known."""
        return self.ranges([queue])[queue]

    def ranges(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, range]:
        """Return what :meth:`offsets` returns of each queue, by one look at the end of the log.

        The queues of a removed topic begin where they ended then.
        """
        reader = open_reader(self.root)
        lows, removed = reader.lows(), removed_topics.read_ends(self.root)

        def log_of(topic: str) -> range:
            return range(max(reader.begin, removed.get(topic, 0)), reader.limit)

        return {queue: self._offsets(queue, log_of(queue.topic), lows.get(queue, 0)) for queue in queues}

    def _offsets(self, queue: MessageQueue, log: range, low: int) -> range:
        consume_queue = self._consume_queues[queue]
        try:
            stop = consume_queue.end_below(log.stop)
            start = consume_queue.begin(log.start)
        except FileNotFoundError:  # removed after the directory was listed
            return self.offsets(queue)
        return range(min(max(start, low), stop), stop)

    def log_range(self) -> range:
        """Return the commit log offsets from the oldest byte to the end of what may be looked at now."""
        reader = open_reader(self.root)
        return range(reader.begin, reader.limit)

    def entries(self, queue: MessageQueue, first: int, stop: int) -> bytes:
        """Return entries from ``first`` on; see :class:`View`."""
        consume_queue = self._consume_queues[queue]
        begin = consume_queue.first_entry_of(first)
        count = min(stop, begin + self.entries_per_file) - first
        return consume_queue.files.read(begin * _ENTRY.size, (first - begin) * _ENTRY.size, count * _ENTRY.size)

    def log(self, commit_log_offset: int, size: int) -> LogPart:  # noqa: ARG002 - a mapping is the whole file
        """Return the whole file that holds an offset, mapped; see :class:`View`."""
        base = self._log_files.base_of(commit_log_offset)
        return LogPart(self._log_files.mapping(base), base, base + self.log_file_bytes)

    def release(self) -> None:
        """Let go of files that were removed meanwhile."""
        self._mappings.release_removed()


def entry_at(view: View, queue: MessageQueue, queue_offset: int) -> Entry:
    """Return one entry. Raises FileNotFoundError, StoreCorrupt."""
    return Entry(*_ENTRY.unpack_from(view.entries(queue, queue_offset, queue_offset + 1)))


def offset_by_time(view: View, queue: MessageQueue, known: range, timestamp_ms: int) -> int:
    """Return the first of the ``known`` queue offsets whose message was stored at or after a time; else their end."""
    return first_offset(known, lambda offset: store_timestamp_of(view, queue, offset, known.stop) >= timestamp_ms)


def first_offset(known: range, is_behind: Callable[[int], bool]) -> int:
    """Return the first of ``known`` for which ``is_behind`` is true, or their end; once true it must stay true."""
    low, high = known.start, known.stop
    while low < high:
        middle = (low + high) // 2
        if is_behind(middle):
            high = middle
        else:
            low = middle + 1
    return low


def messages_in(view: View, queue: MessageQueue, queue_offset: int) -> int:
    """Return how many messages a record says that it has: more than 1 in a compressed batch; 1 if it is unreadable.

    Raises as :meth:`View.log`.
    """
    entry = entry_at(view, queue, queue_offset)
    part = view.log(entry.commit_log_offset, max(entry.size, _RECORD_HEAD_BYTES))
    found = decode(memoryview(part.content), entry.commit_log_offset - part.base, entry.commit_log_offset)
    return stated_messages(found.message) if isinstance(found, Record) else 1


def store_timestamp_of(view: View, queue: MessageQueue, queue_offset: int, end: int) -> int:
    """Return when the message or the next readable one below ``end``, was stored, in ms; else a time after all."""
    for offset in range(queue_offset, end):
        entry = entry_at(view, queue, offset)
        part = view.log(entry.commit_log_offset, max(entry.size, _RECORD_HEAD_BYTES))
        found = decode(memoryview(part.content), entry.commit_log_offset - part.base, entry.commit_log_offset)
        if isinstance(found, Record):
            return found.message.store_timestamp
    return 1 << 62
