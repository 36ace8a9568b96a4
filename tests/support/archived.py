"""Archives for tests: what their views give, what lies in them, and archivers that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from rmqclient.archive import uploads as archive_uploads
from rmqclient.archive.archiver import archive
from rmqclient.archive.uploads import Upload
from rmqclient.store import MessageQueue, MessageStore, layout
from rmqclient.store.inspect.view import View
from rmqclient.store.settings.disk import Usage
from tests.support.written import TOP, fill

_ENTRY = layout.CONSUME_QUEUE_ENTRY

Row = tuple[MessageQueue, int, bytes, bytes]
"""Queue, queue offset, the entry, the record."""


def rows(view: View, *, log_end: int | None = None) -> list[Row]:
    """Return every message, read through its entry; with ``log_end`` only those below that commit log offset."""
    found = [row for queue in view.queues() for row in rows_of(view, queue, view.offsets(queue))]
    ends = {row[:2]: _ENTRY.unpack_from(row[2])[0] for row in found}
    return [row for row in found if log_end is None or ends[row[:2]] < log_end]


def rows_of(view: View, queue: MessageQueue, offsets: range) -> Iterator[Row]:
    """Yield messages of one queue."""
    at = offsets.start
    while at < offsets.stop:
        entries = view.entries(queue, at, offsets.stop)
        assert entries, f"no entries of {queue} from {at} on"
        for position in range(0, len(entries), _ENTRY.size):
            begin, size, _ = _ENTRY.unpack_from(entries, position)
            yield queue, at, entries[position : position + _ENTRY.size], log_bytes(view, begin, begin + size)
            at += 1


def log_bytes(view: View, begin: int, end: int, step: int = 10_000) -> bytes:
    """Return bytes of the log, read part by part."""
    content = bytearray()
    while begin < end:
        part = view.log(begin, min(step, end - begin))
        found = bytes(memoryview(part.content)[begin - part.base : min(end, part.file_end) - part.base])
        assert found, f"the part from {begin} on is empty"
        content += found
        begin += len(found)
    return bytes(content)


def more(store: MessageStore, messages: int = 300) -> None:
    """Append, and flush."""
    fill(store, messages)
    store.flusher.flush_thorough()


def force(store: MessageStore, keep: int = 1) -> None:
    """Let retention remove all commit log files but the last ones, as on a disk that is nearly full."""
    store.disk.usage = lambda: Usage(99.0, 0)  # type: ignore[method-assign]
    store.retention._pause = lambda _: None
    candidates = store.retention._candidates
    files = candidates.files
    spared = set(store.log_files.bases()[-keep:])
    candidates.files = lambda: (file for file in files() if file.base not in spared)  # type: ignore[method-assign]
    while store.retention.clean():
        pass
    candidates.files = files  # type: ignore[method-assign]


def files_in(directory: Path) -> dict[str, bytes]:
    """Return every file by its name, but for the manifest."""
    paths = (path for path in directory.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}


def killed_at(step: int, root: Path, url: str) -> bool:
    """Archive in a child that is killed at a step of its progress; False when it came to its end before."""
    child = os.fork()
    if child == 0:
        try:
            _archive_until(step, root, url)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def killed_in_new_process(step: int, root: Path, url: str) -> bool:
    """Do the same in a process that is not forked, for clients that have threads. It has this one's environment."""
    command = [sys.executable, "-m", "tests.support.archived", str(step), str(root), url]
    status = subprocess.run(command, cwd=TOP, check=False, timeout=60).returncode
    assert status in (0, -signal.SIGKILL)
    return status != 0


def _archive_until(step: int, root: Path, url: str) -> None:
    archive(root, url, progress=at_step(step, lambda: os.kill(os.getpid(), signal.SIGKILL)))


def at_step(step: int, do: Callable[[], object]) -> Callable[[Upload], None]:
    """Return a progress that does something when it is told for the so many-th time."""
    seen = 0

    def progress(_: Upload) -> None:
        nonlocal seen
        seen += 1
        if seen == step:
            do()

    return progress


if __name__ == "__main__":
    archive_uploads.READ_BYTES = 12_288
    _archive_until(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
