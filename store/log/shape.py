"""Shape: files that are missing or have the wrong kind or size, found before their content is read.

A file that is too short gets its size back, filled with zeros. The surplus bytes of a file that is too long go to
``<root>/quarantined`` and are cut off. A broker refuses every file of another size; after this it opens the store, too,
and no byte is lost. Anything but a plain file (a directory, a symbolic link, a pipe) is refused: it is not ours to move
or to write through.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.errors import NO_ROOM, ConfigMismatch, StoreFull, StoreUnusable
from rmqclient.store.files.file_queue import FileQueue, written_parts
from rmqclient.store.files.mapped_file import make_directory, sync_directory
from rmqclient.store.files.sharing import open_for_owner
from rmqclient.store.log import commit_log, consume_queue
from rmqclient.store.log.consume_queue import ConsumeQueue, ConsumeQueues, Entry
from rmqclient.store.log.record import Record
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.settings import store_settings

QUARANTINED = "quarantined"
"""Directory in the root for bytes that belong nowhere in the log and are kept."""

_ENTRY = layout.CONSUME_QUEUE_ENTRY
_NO_ENTRIES = (Entry(0, 0, 0), Entry(*layout.PRE_BLANK_ENTRY))


@dataclass(frozen=True, slots=True)
class OddFile:
    """A file of another size than all others."""

    path: Path
    size: int
    right_size: int

    def line(self) -> str:
        """Return in words how it is repaired."""
        there = f"{self.path} has {self.size} bytes instead of {self.right_size}"
        if self.size < self.right_size:
            return f"{there}: zeros stand for those that are missing"
        return (
            f"{there}: the {self.size - self.right_size} bytes behind its end go to {QUARANTINED}/ if they are no zeros"
        )


def usual_sizes(root: Path) -> tuple[int, int]:
    """Return the most frequent size of commit log files and of consume queue files; 0 without files.

    Of equally frequent sizes the larger one counts: a file is cut short more easily than it grows.
    """
    log, queue = _files_by_size(root, commit_log.DIRECTORY), _files_by_size(root, f"{consume_queue.DIRECTORY}/*/*")
    return _most_frequent(log), _most_frequent(queue)


def check_sizes(root: Path, log_bytes: int, entries: int) -> None:
    """Raise ConfigMismatch if the files were made with other fixed settings.

    Wrong settings would cut good files. A single file that is too short counts as damaged.
    """
    for pattern, size in (commit_log.DIRECTORY, log_bytes), (f"{consume_queue.DIRECTORY}/*/*", entries * _ENTRY.size):
        found = _files_by_size(root, pattern)
        if found and size not in found and (found.total() > 1 or max(found) > size):
            raise ConfigMismatch(
                f"{root}: no file of {pattern} has {size} bytes, as {store_settings.STORE_SETTINGS_FILE} says, "
                f"most have {_most_frequent(found)}: put the right {store_settings.STORE_SETTINGS_FILE} back"
            )


def _files_by_size(root: Path, pattern: str) -> Counter[int]:
    found: Counter[int] = Counter()
    for path in root.glob(f"{pattern}/{'[0-9]' * layout.FILE_NAME_DIGITS}"):
        with suppress(FileNotFoundError):  # removed meanwhile, by those who have the store open
            status = path.lstat()
            found[status.st_size] += stat.S_ISREG(status.st_mode)
    return +found


def _most_frequent(sizes: Counter[int]) -> int:
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def odd_files(log_files: FileQueue, queues: ConsumeQueues) -> list[OddFile]:
    """Return all files of another size. Raises StoreUnusable for anything but a plain file."""
    everywhere = [log_files, *(queues[queue].files for queue in queues.on_disk())]
    return [odd for files in everywhere for _, odd in odd_files_of(files)]


def odd_files_of(files: FileQueue) -> Iterator[tuple[int, OddFile]]:
    """Yield begin and shape of the files of another size. Raises StoreUnusable for anything but a plain file."""
    for base in files.bases():
        path = files.path(base)
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue  # removed meanwhile, by those who have the store open
        if not stat.S_ISREG(status.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no plain file"
            raise StoreUnusable(f"{path} is {kind}, and a store holds plain files only: move it away")
        if status.st_size != files.file_bytes:
            yield base, OddFile(path, status.st_size, files.file_bytes)


def resize(odd: OddFile, root: Path) -> None:
    """Give a file its size back. Only while no other process has the store open. Raises StoreFull."""
    try:
        with odd.path.open("r+b") as file:
            file.seek(odd.right_size)
            surplus = file.read()
            if surplus.strip(b"\0"):
                _keep(root, odd.path, surplus)
            file.truncate(min(odd.size, odd.right_size))
            os.posix_fallocate(file.fileno(), 0, odd.right_size)
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in NO_ROOM:
            raise StoreFull(f"no room to give {odd.path} its {odd.right_size} bytes ({error.strerror})") from error
        raise


def put_away(files: FileQueue, base: int, root: Path) -> None:
    """Move a file that is not empty and belongs nowhere in the log into quarantine."""
    path = files.path(base)
    directory = _quarantine(root)
    number = 0
    while (kept := directory / f"{_name(root, path)}.{number}").exists():
        number += 1
    files.forget(base)
    path.rename(kept)
    sync_directory(directory)


def gaps(bases: Sequence[int], file_bytes: int) -> list[tuple[int, int]]:
    """Return the parts between the first and the last of ``bases`` that have no file."""
    return [(before + file_bytes, base) for before, base in pairwise(bases) if before + file_bytes < base]


def begins_with_record(files: FileQueue, base: int) -> bool:
    """Return whether a commit log file exists and begins with a record of this position."""
    try:
        return isinstance(commit_log.LogReader(files).outcome(base), Record)
    except FileNotFoundError:
        return False


def is_empty(files: FileQueue, base: int, position: int = 0) -> bool:
    """Return whether a file holds only zeros from ``position`` on."""
    return not any(written_parts(files, base, position, files.file_bytes))


def is_whole(queue: MessageQueue, entries: ConsumeQueue, log_files: FileQueue) -> bool:
    """Return whether the files of a consume queue follow each other, and each begins and ends as it must.

    This finds files that were lost, cut short, swapped or brought from elsewhere. It reads two entries of each file.
    """
    bases = entries.files.bases()
    if not bases:
        return True
    log = log_files.bases()
    within = range(log[0], log[-1] + log_files.file_bytes) if log else range(0)
    firsts = [base // _ENTRY.size for base in bases]
    lasts = [first + entries.entries_per_file - 1 for first in firsts[:-1]]
    may_be_empty = {*firsts}.difference(lasts)
    follow_each_other = len(bases) == (bases[-1] - bases[0]) // entries.files.file_bytes + 1
    has_its_begin = bases[0] == 0 or entries.entry(firsts[0]).commit_log_offset <= within.start
    return (
        follow_each_other
        and has_its_begin
        and all(
            (number in may_be_empty or entries.entry_or_none(number) is not None)
            and _is_right(queue, number, entries, log_files, within)
            for number in sorted([*firsts, *lasts])  # both of one file while it is open
        )
    )


def _is_right(queue: MessageQueue, number: int, entries: ConsumeQueue, log_files: FileQueue, within: range) -> bool:
    """Return whether an entry is empty, is older than the log, or matches its record."""
    entry = entries.entry(number)
    offset = entry.commit_log_offset
    if entry in _NO_ENTRIES or 0 <= offset < within.start:
        return True
    try:
        found = commit_log.LogReader(log_files).outcome(offset) if offset in within else None
    except FileNotFoundError:
        found = None
    if not isinstance(found, Record):
        return offset in within and _is_between_its_neighbours(number, entries)
    message = found.message
    stored = (message.topic, message.queue_id, message.queue_offset, found.size)
    return stored == (queue.topic, queue.queue_id, number, entry.size)


def _is_between_its_neighbours(number: int, entries: ConsumeQueue) -> bool:
    """Return whether an entry can belong to a lost record of which nothing else is left."""
    before, after = (entries.entry_or_none(other) if other >= 0 else None for other in (number - 1, number + 1))
    offset, size, _ = entries.entry(number)
    return (before is None or before in _NO_ENTRIES or before.commit_log_offset <= offset) and (
        after is None or offset + size <= after.commit_log_offset or offset == after.commit_log_offset
    )


def _keep(root: Path, path: Path, surplus: bytes) -> None:
    """Write the surplus bytes of a file; doing it twice after a crash leaves one file."""
    directory = _quarantine(root)
    kept = directory / f"{_name(root, path)}.surplus-{zlib.crc32(surplus):08x}"
    with open(kept, "wb", opener=open_for_owner) as file:
        file.write(surplus)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(directory)


def _quarantine(root: Path) -> Path:
    directory = root / QUARANTINED
    make_directory(directory)
    sync_directory(root)
    return directory


def _name(root: Path, path: Path) -> str:
    return "-".join(path.relative_to(root).parts)
