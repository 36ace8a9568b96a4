"""Staging: writes the rows of one task, as staged records, into a file that only this attempt writes.

The file ``<store>/spark/.staging/<run>/<part>-<attempt>-<random>`` is written under another name and renamed when it is
whole. A run is one write of one driver. Its name identifies the driver's process, so that the files of a killed driver
can be told from those of a living one::

    <32 hexadecimal digits>.<number of the process namespace>.<process id>.<start time of the process>

Staged files are not part of the log. Files that no commit names are removed: with their run when it commits or aborts,
or when a later commit of any application finds the driver dead. The drivers of another process namespace, such as
another container's, cannot be seen from here; their runs are left alone for a day after the last change.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa

from rmqclient.names import check_topic
from rmqclient.spark.writing.write_columns import exported
from rmqclient.store import StoreConfig
from rmqclient.store.append import staged
from rmqclient.store.errors import store_errors
from rmqclient.store.files.mapped_file import make_directory
from rmqclient.store.files.sharing import open_for_owner
from rmqclient.store.log.sizes import settings_of
from rmqclient.store.settings.topic_table import not_writable

DIRECTORY = Path("spark", ".staging")

_BUFFERED_BYTES = 16 << 20
"""Bytes encoded before the rows of each queue are written together: more bytes mean fewer sections of the append."""

_STRANGERS_LIVE_S = 24 * 3600
_NAMESPACE = Path("/proc/self/ns/pid")


@dataclass(frozen=True)
class StagedPart:
    """The result of one attempt. ``file`` is a path below the store, empty if there was no row."""

    part: int
    rows: int
    size: int
    digest: int
    content: int
    file: str
    queue_counts: dict[str, int]

    def is_same(self, other: StagedPart) -> bool:
        """Return whether another part has the same rows in the same order."""
        return (self.part, self.rows, self.size, self.digest) == (other.part, other.rows, other.size, other.digest)

    def as_json(self) -> dict[str, Any]:
        """Return a JSON value for :meth:`from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return the part. Raises TypeError."""
        return cls(**fields)


def new_run() -> str:
    """Return the name of a run of the driver that this process belongs to."""
    process = _driver()
    return f"{secrets.token_hex(16)}.{_namespace()}.{process}.{_start_time(process)}"


def stage(
    root: Path, run: str, part: int, attempt: int, batches: Iterable[pa.RecordBatch], topic: str | None
) -> StagedPart:
    """Encode and write the rows of one attempt. If this raises, no file is left.

    Raises MessageRejected, BodyTooLarge, PropertiesTooLarge or InvalidName, which name the row; StoreFull; DiskFailed.
    """
    name = DIRECTORY / run / f"{part:05}-{attempt}-{secrets.token_hex(4)}"
    stager = staged.stager(topic, part, _queue_counts_of(root), settings_of(root).commit_log_file_bytes)
    temporary = root / f"{name}.tmp"
    with store_errors(f"{temporary} cannot be written"):
        make_directory(temporary.parent)
        try:
            with open(temporary, "xb", buffering=0, opener=open_for_owner) as file:
                for batch in batches:
                    _encode(stager, batch, topic, file)
                stager.drain(lambda run: _write(file, run))
            if stager.rows:
                temporary.rename(root / name)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
    file_name = str(name) if stager.rows else ""
    return StagedPart(
        part, stager.rows, stager.size, stager.digest, stager.content, file_name, dict(stager.queue_counts)
    )


def remove_runs(root: Path, runs: Iterable[str]) -> None:
    """Remove the staged files of these runs, and those of dead drivers."""
    for run in runs:
        shutil.rmtree(root / DIRECTORY / run, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError), os.scandir(root / DIRECTORY) as entries:
        for entry in entries:
            if _is_dead(entry.name, entry.path):
                shutil.rmtree(entry.path, ignore_errors=True)


def _encode(stager: staged.Stager, batch: pa.RecordBatch, topic: str | None, file: BinaryIO | Any) -> None:
    columns = exported(batch, topic)
    row = 0
    while row < batch.num_rows:
        row = stager.add(row, batch.num_rows, _BUFFERED_BYTES, **columns)
        if stager.buffered >= _BUFFERED_BYTES:
            stager.drain(lambda run: _write(file, run))


def _write(file: Any, content: memoryview) -> None:
    while content:
        content = content[file.write(content) :]


def _queue_counts_of(root: Path) -> Callable[[str], int]:
    """Return a function from a topic to how many queues take its rows now, or will. It raises TopicNotWritable."""
    known = staged.queue_counts(root)

    def count(topic: str) -> int:
        found = known.get(check_topic(topic), StoreConfig().default_queue_count)
        if not found:
            raise not_writable(topic)
        return found

    return count


# --- which driver a run belongs to -------------------------------------------------------------------------------


def _driver() -> int:
    """Return the process id of the Java process that started this process; without one, the id of this process."""
    process = os.getpid()
    while process > 1:
        fields = _stat(process)
        if fields is None:
            break
        name, parent = fields[0], int(fields[2])
        if name == "java":
            return process
        process = parent
    return os.getpid()


def _start_time(process: int) -> int:
    fields = _stat(process)
    return int(fields[20]) if fields else 0


def _stat(process: int) -> list[str] | None:
    """Return name, state, parent and so on of a process (proc_pid_stat(5)); None if the process is gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    before, _, behind = text.rpartition(")")
    return [before.partition("(")[2], *behind.split()]


def _namespace() -> int:
    return _NAMESPACE.stat().st_ino


def _is_dead(run: str, path: str) -> bool:
    _, *numbers = run.split(".")
    if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        return False
    namespace, process, started = map(int, numbers)
    if namespace != _namespace():
        with contextlib.suppress(OSError):
            return Path(path).stat().st_mtime < time.time() - _STRANGERS_LIVE_S
        return False
    return _start_time(process) != started
