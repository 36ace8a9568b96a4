"""Compacted checks: what is wrong with compacted files, for :mod:`rmqclient.store.inspect.verify`.

Each problem is a path, a position in that file and a reason in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.compacted_file import CompactedFile, compacted_queues, open_compacted
from rmqclient.store.kernel._kernel import key_and_body_size
from rmqclient.store.message_queue import MessageQueue

Told = tuple[Path, int, str]


def entry_problems(root: Path, ends: Mapping[MessageQueue, int]) -> Iterator[Told]:
    """Check the header and the entries of each file; ``ends`` are the max offsets of the queues."""
    for queue in compacted_queues(root):
        try:
            file = open_compacted(root, queue)
        except StoreCorrupt as error:
            yield error.path, error.position, error.reason
            continue
        if file is not None:
            yield from _problems_of(file)
            end = ends.get(queue, file.compacted_to)
            if file.compacted_to > end:
                position = layout.COMPACTED_HEADER.at["compacted_to"]
                yield file.path, position, f"compacted_to is {file.compacted_to}, the queue ends at {end}"


def record_problems(root: Path) -> Iterator[Told]:
    """Check the records to which the undamaged entries of each file point."""
    for file in _files(root):
        for number, entry, message in file.messages():
            if entry is not None and message is None:
                words = f"entry {number} points to no whole record of message {entry.queue_offset} of {file.queue}"
                yield file.path, entry.position, words


def key_problems(root: Path) -> Iterator[Told]:
    """Check that no two undamaged records of a file have the same key."""
    for file in _files(root):
        seen: dict[bytes, int] = {}
        for _, entry, message in file.messages():
            if entry is not None and message is not None:
                key, _ = key_and_body_size(message)
                if key is None:
                    yield file.path, entry.position, "a record has no key"
                elif key in seen:
                    words = f"key {key!r} has messages {seen[key]} and {entry.queue_offset}"
                    yield file.path, entry.position, words
                if key is not None:
                    seen[key] = entry.queue_offset


def _problems_of(file: CompactedFile) -> Iterator[Told]:
    before = -1
    for number, entry, _ in file.messages():
        if entry is None:
            yield file.path, file.position(number), f"entry {number} is damaged"
        elif not before < entry.queue_offset < file.compacted_to:
            words = f"entry {number} has queue offset {entry.queue_offset}, after {before}"
            yield file.path, file.position(number), words
        before = before if entry is None else entry.queue_offset


def _files(root: Path) -> Iterator[CompactedFile]:
    for queue in compacted_queues(root):
        with suppress(StoreCorrupt):
            if (file := open_compacted(root, queue)) is not None:
                yield file
