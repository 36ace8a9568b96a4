"""Cutting: the end of a log that no other store has is kept in a file, and taken away, so that the store can follow.

=====================================  =================================================================
step                                   what a death leaves
=====================================  =================================================================
copy the bytes to ``diverged/``        a copy that nobody needs
write the mark, which says ``cut_to``  the next opening goes on from here
lower the checkpoint                   the same
remove the files behind the cut        the same
zero the rest of its file, and flush   the same: bytes that stay could be taken for records again, when what is
                                       appended later ends exactly where one of them begins
write the mark without ``cut_to``      done; recovery cuts queues and index and moves groups back
=====================================  =================================================================

A store is cut by its opening, which no other process can come between.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import StoreUnusable, store_errors
from rmqclient.store.files.compacted_file import compacted_queues, open_compacted
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.files.mapped_file import make_directory, sync_directory
from rmqclient.store.files.sharing import open_for_owner
from rmqclient.store.log import commit_log
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime import shared_state
from rmqclient.store.settings import checkpoint, lineage, replica_mark
from rmqclient.store.settings.checkpoint import LowWater
from rmqclient.store.waiting.timer_restore import TIMER_DONE_FILE

DIVERGED: Final = "diverged"

_PART_BYTES: Final = 1 << 20


def keep(root: Path, log_files: FileQueue, start: int, end: int, epoch: int) -> Path | None:
    """Copy the end of a log to ``diverged/<offset>-<epoch>.log``, durably; return where it is, None for no bytes.

    A file that has the name already stays, and the next free name is taken. Raises StoreFull, StoreCorrupt.
    """
    if start == end:
        return None
    directory = root / DIVERGED
    names = (f"{start:020d}-{epoch}{f'.{number}' if number else ''}.log" for number in count())
    with store_errors(f"the end of the log cannot be copied to {directory}"):
        if not directory.is_dir():
            make_directory(directory)
            sync_directory(root)
        path = next(path for path in (directory / name for name in names) if not path.exists())
        unfinished = directory / "unfinished"
        with open(unfinished, "wb", opener=open_for_owner) as file:
            file.writelines(parts(log_files, start, end))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        sync_directory(directory)
    return path


def parts(log_files: FileQueue, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a log in parts, each of one file. Raises FileNotFoundError, StoreCorrupt."""
    while start < end:
        base = log_files.base_of(start)
        part = log_files.read(base, start - base, min(end, base + log_files.file_bytes, start + _PART_BYTES) - start)
        yield part
        start += len(part)


def check_compacted(root: Path, ends: Mapping[MessageQueue, int]) -> None:
    """Raise StoreUnusable when a compacted file has messages behind these ends of queues, which a cut leaves there."""
    for queue in compacted_queues(root):
        file = open_compacted(root, queue)
        if file is not None and file.compacted_to > ends.get(queue, file.compacted_to):
            raise StoreUnusable(
                f"{queue} was compacted up to {file.compacted_to}, and would end at {ends[queue]}: the store cannot be "
                "cut there. Make a new directory for the replica; nothing was changed"
            )


def finish(root: Path, log_files: FileQueue) -> None:
    """Cut the log where the mark says so, if it does. For the opening, alone in the directory. Can be repeated."""
    mark = replica_mark.read_mark(root)
    if mark is None or mark.cut_to < 0:
        return
    end = mark.cut_to
    reach(CrashPoint.CUT_ANNOUNCED)
    _forget_above(root, end)
    for base in sorted((base for base in log_files.bases() if base >= end and base), reverse=True):
        log_files.remove(base)  # recovery would remove it, too, and has less to read now
    reach(CrashPoint.CUT_HALF_ZEROED)
    file_end = log_files.base_of(end) + log_files.file_bytes
    commit_log.zero(log_files, end, file_end)
    if log_files.directory.is_dir():
        sync_directory(log_files.directory)
        if log_files.base_of(end) in log_files.bases():
            log_files.sync(end, file_end)
    reach(CrashPoint.CUT_ZEROED)
    known = lineage.read_lineage(root)
    lineage.write_lineage(root, known._replace(epochs=lineage.cut(known.epochs, end)))
    replica_mark.write_mark(root, replace(mark, cut_to=-1))


def _forget_above(root: Path, end: int) -> None:
    """Take back what says that there is something at and above ``end``."""
    marks, low_water = checkpoint.read(root)
    if low_water is not None:
        lowered = LowWater(low_water.sequence + 1, min(low_water.flushed_to, end), min(low_water.dispatched_to, end))
        checkpoint.write(root, replace(marks, flushed_to=lowered.flushed_to), lowered)
    for name in (shared_state.FILE_NAME, TIMER_DONE_FILE):
        (root / name).unlink(missing_ok=True)
    sync_directory(root)
