"""Records: what an onlooker reads of consume queues and of the log, by ``pread``, so that a removed file is an answer.

A place in a queue never gets another message, so its store time is read once. Descriptors of log files are let go of
within a minute, because a file that retention has removed takes its room on the disk until then.
"""

from __future__ import annotations

import os
import struct
import time

from rmqclient.store import layout
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.observe.config import opened

_ENTRY = struct.Struct(">qiq")
_ENTRIES_READ = 1 << 13
_HEADER = layout.RECORD_HEADER
_V6_SHIFT = 12
"""Bytes by which an IPv6 address of the producer moves the store time."""
_RELEASE_S = 60.0
_MOST_FILES = 64
_REAL_RETRY_TOPIC = b"REAL_TOPIC\x01%RETRY%"
_SLEEPS = b"\x02RMQ_STEPS\x01"
"""The property of a message whose durable step sleeps: :data:`rmqclient.steps.journal.PAUSED`."""
_MOST_TAIL = layout.MAX_PROPERTIES_BYTES + 2


class Records:
    """The records of one store, for one thread. File sizes are settings that a store keeps for ever."""

    def __init__(self, root: str, log_file_bytes: int, queue_file_bytes: int) -> None:
        self._root = root
        self._log_file_bytes = log_file_bytes
        self._queue_file_bytes = queue_file_bytes
        self._files: dict[int, int] = {}
        self._stored: dict[tuple[MessageQueue, int], int | None] = {}
        self._retries: dict[int, str] = {}
        self._release_at = time.monotonic() + _RELEASE_S

    def close(self) -> None:
        """Let go of every file, and of what is known."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()
        self._stored.clear()

    def release(self) -> None:
        """Let go of everything once in a minute."""
        if time.monotonic() >= self._release_at:
            self._release_at = time.monotonic() + _RELEASE_S
            self.close()

    def stored_ms(self, queue: MessageQueue, queue_offset: int) -> int | None:
        """Return when the message at a queue offset was stored, in ms since 1970; None when it is not in the log."""
        key = queue, queue_offset
        if key not in self._stored:
            if len(self._stored) > 2 * layout.GROUP_QUEUE_SLOTS:
                self._stored.clear()
            entry = next(iter(self.entries(queue, queue_offset, queue_offset + 1)), None)
            self._stored[key] = None if entry is None else self.stored_at(entry[0])
        return self._stored[key]

    def stored_at(self, commit_log_offset: int) -> int | None:
        """Return when the record at a byte of the log was stored, in ms since 1970; None when none is there."""
        record = self._log(commit_log_offset, _HEADER.size + _V6_SHIFT)
        at = _HEADER.at
        if len(record) < _HEADER.size or struct.unpack_from(">i", record, at["magic"])[0] != layout.RECORD_MAGIC:
            return None
        if struct.unpack_from(">q", record, at["commit_log_offset"])[0] != commit_log_offset:
            return None
        flags = struct.unpack_from(">i", record, at["sys_flag"])[0]
        shift = _V6_SHIFT if flags & layout.SYS_FLAG_BORN_HOST_V6 else 0
        return int(struct.unpack_from(">q", record, at["store_timestamp"] + shift)[0])

    def entries(self, queue: MessageQueue, start: int, end: int, step: int = 1) -> list[tuple[int, int, int]]:
        """Return commit log offset, size and tags code of each ``step``-th entry that is there."""
        found: list[tuple[int, int, int]] = []
        while start < end:
            position = start * _ENTRY.size
            begin = position - position % self._queue_file_bytes
            last = min(end, (begin + self._queue_file_bytes) // _ENTRY.size, start + _ENTRIES_READ * step)
            found += self._part(
                f"{self._root}/consumequeue/{queue.topic}/{queue.queue_id}/{begin:020}", start, last, step
            )
            start += -(-(last - start) // step) * step
        return found

    def retry_groups(self, entries: list[tuple[int, int, int]]) -> list[str]:
        """Return, of waiting messages, the groups whose retry topic they are for; "" for those of other topics."""
        known = self._retries
        self._retries = {at: known[at] if at in known else self._retry_group(at, size) for at, size, _ in entries}
        return list(self._retries.values())

    def _retry_group(self, commit_log_offset: int, size: int) -> str:
        tail = min(size, _MOST_TAIL)
        record = self._log(commit_log_offset + size - tail, tail)
        at = record.rfind(_REAL_RETRY_TOPIC)  # properties stand behind the body
        if at < 0 or _SLEEPS in record:
            return ""
        begin = at + len(_REAL_RETRY_TOPIC)
        return record[begin : record.find(b"\x02", begin)].decode("utf-8", "replace")

    def _part(self, path: str, start: int, end: int, step: int) -> list[tuple[int, int, int]]:
        try:
            descriptor = opened(path)
        except OSError:
            return []
        try:
            position = start * _ENTRY.size % self._queue_file_bytes
            if step < _MOST_FILES:
                content = os.pread(descriptor, (end - start) * _ENTRY.size, position)
                whole = content[: len(content) - len(content) % _ENTRY.size]
                found = list(_ENTRY.iter_unpack(whole))[::step]
            else:
                places = range(position, position + (end - start) * _ENTRY.size, step * _ENTRY.size)
                parts = [os.pread(descriptor, _ENTRY.size, each) for each in places]
                found = [_ENTRY.unpack(each) for each in parts if len(each) == _ENTRY.size]
        finally:
            os.close(descriptor)
        return [each for each in found if each[1] > 0]

    def _log(self, commit_log_offset: int, size: int) -> bytes:
        begin = commit_log_offset - commit_log_offset % self._log_file_bytes
        if begin not in self._files:
            if len(self._files) == _MOST_FILES:
                self.close()
            try:
                self._files[begin] = opened(f"{self._root}/commitlog/{begin:020}")
            except OSError:
                return b""
        return os.pread(self._files[begin], size, commit_log_offset - begin)
