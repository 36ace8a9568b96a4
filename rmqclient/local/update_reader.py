"""Update reader: bulk reads of the keys and values of a queue's messages in a store of this host.

In a compact topic, messages from before the begin of the log are read from the compacted file.

The kernel checks several records at a time and puts keys and bodies into buffers (store/kernel/arrow/columns.pxi). Here
the buffers become lists, without an object for each message. A batch that is one record gives one row for each of its
messages. A body that cannot be opened, or a record that cannot be read, is read again as a single message.

The reader has its own mappings of files. The store unmaps a file when retention removes it, and that must not happen
between the check of a record and the copy of its body.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Literal

from rmqclient.backend.updates import Unreadable, Updates, said_by
from rmqclient.store import STOPPED, Collector, ColumnBuffer, Columns, MessageQueue, MessageStore
from rmqclient.store.bodies import COMPRESSED
from rmqclient.store.errors import MessageExpired, StoreCorrupt
from rmqclient.store.files.compacted_file import open_compacted
from rmqclient.store.inspect.view import LocalView, LogPart
from rmqclient.store.log.consume_queue import ENTRY
from rmqclient.store.log.inner_batch import INNER_BATCH
from rmqclient.store.threads.logs import Log

_ENTRIES_AT_ONCE = 16_384
_ROWS = 8_192
_BYTES = 4 << 20
_OPENED = COMPRESSED | INNER_BATCH
"""System flags of records that the kernel decompresses. If it cannot do that, the row has no value."""

_NAMES = ("key", "value", "commit_log_offset", "sys_flag")

_log = Log(__name__)


class LocalUpdateReader:
    """Reads the queues of one store. For one thread."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._view = LocalView(store.root)
        limit = store.config.max_opened_body_bytes
        self._columns = Columns(_NAMES, rows=_ROWS, size=_BYTES, max_opened_body_bytes=limit, null_unreadable=True)
        self._collector = Collector(self._columns)
        self._part: LogPart | None = None
        self._removal_bell = store.removal_bell()
        self._removed = 0
        """``heard`` of the bell at the last look at the files."""

    @property
    def reads_in_order(self) -> bool:
        """True, because an append publishes its message before the next append begins."""
        return True

    def read(self, queue: MessageQueue, start: int, stop: int) -> Iterator[Updates]:
        """As :meth:`rmqclient.backend.updates.UpdateReader.read`. Raises StoreClosed, LimitReached, DiskFailed."""
        self._store.life.check_usable()
        self._columns.take()  # drop rows left by an earlier error
        is_compact = self._store.topics.is_compact(queue.topic)
        while start < stop:
            if is_compact:
                start = yield from self._read_compacted(queue, start)
            if start < stop:
                start, is_whole = yield from self._read_entries(queue, start, stop)
                if not (is_whole or (is_compact and start < self._store.compaction.log_low(queue))):
                    yield (updates := self._read_one(queue, start))
                    start = updates.next_offset

    def refresh(self) -> None:
        """Unmap files that were removed."""
        removed = self._removal_bell.heard()
        if removed != self._removed:
            self._removed = removed
            self._part = None
            self._view.release()

    def _read_compacted(self, queue: MessageQueue, start: int) -> Generator[Updates, None, int]:
        """Read the compacted file if the log begins after ``start``; return the next offset in the log.

        A compacted file covers all messages up to its end, also those that the log still has.
        """
        log_low = self._store.compaction.log_low(queue)
        file = open_compacted(self._store.root, queue) if start < log_low else None
        if file is None or file.compacted_to <= start:
            return max(start, log_low)
        updates = Updates([], [], [], start)
        for number, entry, message in file.messages(file.first_at(start)):
            if entry is None or message is None:
                _log.error("%s: record %d is damaged; the table stepped over it", file.path, number)
                updates = updates._replace(lost=updates.lost + 1)
                continue
            keys, values, offsets = _lists(said_by(message), message.commit_log_offset)
            updates.keys.extend(keys)
            updates.values.extend(values)
            updates.places.extend(offsets)
            if len(updates.keys) >= _ROWS:
                yield updates._replace(next_offset=entry.queue_offset + 1)
                updates = Updates([], [], [], start)
        yield updates._replace(next_offset=file.compacted_to)
        return file.compacted_to

    def _read_entries(self, queue: MessageQueue, first: int, stop: int) -> Generator[Updates, None, tuple[int, bool]]:
        """Yield updates from entries; return the queue offset where this ended, and whether its message can be read."""
        topic, entries = queue.topic.encode(), self._entries(queue, first, stop)
        at, count = 0, len(entries) // ENTRY.size
        is_whole = count > 0
        while at < count and is_whole:
            at, found = self._add(entries, at, first, topic, queue.queue_id)
            if found == STOPPED["FULL"]:
                yield self._taken(first + at)
            elif at < count:
                is_whole = found == STOPPED["ELSEWHERE"] and self._find(entries, at)
        if self._columns.rows:
            yield self._taken(first + at)
        return first + at, is_whole

    def _entries(self, queue: MessageQueue, first: int, stop: int) -> bytes:
        try:
            return self._view.entries(queue, first, min(stop, first + _ENTRIES_AT_ONCE))
        except (FileNotFoundError, StoreCorrupt):
            return b""

    def _add(self, entries: bytes, at: int, first: int, topic: bytes, queue_id: int) -> tuple[int, int]:
        if self._part is None:
            return at, STOPPED["ELSEWHERE"]
        return self._collector.add_queue(entries, at, first, topic, queue_id, self._part.content, self._part.base)

    def _find(self, entries: bytes, at: int) -> bool:
        """Map the file with the record of an entry. False if there is no such file."""
        offset, size, _ = ENTRY.unpack_from(entries, at * ENTRY.size)
        try:
            self._part = self._view.log(offset, size)
        except (FileNotFoundError, StoreCorrupt):
            return False
        return bool(offset + size <= self._part.file_end)

    def _read_one(self, queue: MessageQueue, offset: int) -> Updates:
        """Read one message as an object, which raises the precise error."""
        try:
            message = self._store.messages.at(queue, offset)
            if (message.queue, message.queue_offset) != (queue, offset):
                raise StoreCorrupt(self._store.root, message.commit_log_offset, "another message stands there")
        except MessageExpired:
            oldest = max(offset + 1, self._store.messages.oldest(queue))
            _log.warning("messages %d to %d of %s were removed before the table had them", offset, oldest - 1, queue)
            return Updates([], [], [], oldest, lost=oldest - offset)
        except StoreCorrupt as error:
            _log.error("message %d of %s is damaged; the table stepped over it: %s", offset, queue, error)
            return Updates([], [], [], offset + 1, lost=1)
        said = said_by(message)
        return Updates(*_lists(said, message.commit_log_offset), offset + 1, lost=not said)

    def _taken(self, next_offset: int) -> Updates:
        _, taken = self._columns.take()
        (_, key_parts), (_, value_parts), (_, offset_parts), (_, flag_parts) = (taken[name] for name in _NAMES)
        updates = Updates(_keys(*key_parts), list(_slices(*value_parts)), _numbers(offset_parts[1], "q"), next_offset)
        flags = _numbers(flag_parts[1], "i")
        if any(flags):
            empty = [number for number, flag in enumerate(flags) if flag & _OPENED and not updates.values[number]]
            lost = [self._look_again(updates, number) for number in reversed(empty)]
            updates = updates._replace(lost=sum(lost))
        return updates

    def _look_again(self, updates: Updates, number: int) -> bool:
        """Fill in the rows of a record that the kernel did not open. True if it cannot be opened here either."""
        offset = updates.places[number]
        try:
            said = said_by(self._store.messages.read(offset))
        except (MessageExpired, StoreCorrupt) as error:  # the kernel has just checked it
            said = [(updates.keys[number], Unreadable(str(error)))]
        here = slice(number, number + 1)
        updates.keys[here], updates.values[here], updates.places[here] = _lists(said, offset)
        return not said


def _lists(
    said: list[tuple[str, bytes | Unreadable]], commit_log_offset: int
) -> tuple[list[str], list[bytes | Unreadable], list[int]]:
    return [key for key, _ in said], [value for _, value in said], [commit_log_offset] * len(said)


def _numbers(values: ColumnBuffer | None, kind: Literal["i", "q"]) -> list[int]:
    return [] if values is None else memoryview(values).cast("B").cast(kind).tolist()


def _slices(_: ColumnBuffer | None, offsets: ColumnBuffer | None, data: ColumnBuffer | None) -> Iterator[bytes]:
    numbers = _numbers(offsets, "i")
    return map(bytes(data or b"").__getitem__, map(slice, numbers, numbers[1:]))


def _keys(bitmap: ColumnBuffer | None, offsets: ColumnBuffer | None, data: ColumnBuffer | None) -> list[str]:
    """Return the first key of each message; empty for a message without keys."""
    content = bytes(data or b"")
    if content.isascii():
        numbers = _numbers(offsets, "i")
        keys = list(map(content.decode("ascii").__getitem__, map(slice, numbers, numbers[1:])))
    else:
        keys = [each.decode("utf-8", "replace") for each in _slices(bitmap, offsets, data)]
    return [key.lstrip(" ").partition(" ")[0] for key in keys] if b" " in content else keys
