"""Published: a directory of Parquet files that holds the rows of each micro-batch exactly once.

Spark's own file sink leaves the files of failed tasks beside the good ones, and only readers that know its log
(``_spark_metadata``) can tell them apart. Here any reader of the directory sees each row once, at any time, because
each file enters the directory by one rename, and only once::

    TARGET/topic=orders/day=2026-11-21/batch-00000007-0002.parquet
    TARGET/.published-3f0c.../              an empty directory with the identity that TARGET and TARGET.work share
    TARGET.work/_published.json             the same identity
    TARGET.work/checkpoint/                 Spark's checkpoint: the messages of each batch
    TARGET.work/staging/7-3f0c.../          the files of one attempt to write batch 7
    TARGET.work/batches/7.json              the files of the attempt that became batch 7, with their final names
    TARGET.work/lock                        held by the process that writes

Publishing batch 7:

1. Spark writes to a staging directory of this attempt alone.
2. The staged files are flushed to the disk, and so is the checkpoint's record of the messages of batch 7.
3. ``batches/7.json`` is put in place by a rename. From then on batch 7 *is* these files.
4. Each file is renamed to its final name.
5. The staging directory is removed.

A kill before step 3 leaves a staging directory, which the next start removes. A kill after step 3 leaves renames to do,
which the next start does first. If Spark then runs batch 7 again, ``batches/7.json`` exists, and nothing is written.

The target has Parquet files and nothing else: some readers, such as polars, take every file of a directory.

Files appear one by one: a message is atomic, a batch is not. Both directories must be on one file system.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, Self

import pyarrow.parquet as pq

from rmqclient.errors import DataLost
from rmqclient.spark.pipelines.output.directories import only_writer, sync_files, work_directory_of
from rmqclient.spark.pipelines.output.pair import Pair
from rmqclient.store.files.mapped_file import sync_directory, sync_file
from rmqclient.store.settings.document import replace_file

_KEPT_BATCHES = 100
"""Spark runs only the last batch again, and keeps the records of as many batches."""


@dataclass(frozen=True)
class PublishedFile:
    """One file of a batch."""

    staged: str
    """Path of the staged file, below the work directory."""

    path: str
    """Path of the published file, below the target."""

    rows: int
    size: int


@dataclass(frozen=True)
class Batch:
    """The files of a micro-batch. Settled before the first file is published, and never changed."""

    number: int
    messages: str
    """The messages of the batch, as Spark's checkpoint records them."""

    staging: str
    files: tuple[PublishedFile, ...]


class Table(Protocol):
    """A table whose log gets the files of every batch."""

    def add(self, files: Sequence[PublishedFile], application: str, version: int) -> None:
        """Add files, unless the application has committed this version or a later one before."""


class Published:
    """The directory ``target``, open for one writer at a time.

    Raises StoreBusy while another process writes to it, and DataLost if the target and its work directory do not
    belong together.
    """

    def __init__(self, target: Path, work: Path | None = None, table: Table | None = None) -> None:
        self.target = target
        self.work = work or work_directory_of(target)
        self.checkpoint = self.work / "checkpoint"
        self.added: list[Batch] = []
        """The batches that were published since this was opened."""

        self._table = table
        self._batches = self.work / "batches"
        self._pair = Pair(target, self.work)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(only_writer(self.work, self.target))
            self._batches.mkdir(exist_ok=True)
            numbers = self._numbers()
            self._pair.open(is_new=not numbers)
            if numbers:
                self._finish(self._settled(numbers[-1]))
            shutil.rmtree(self.work / "staging", ignore_errors=True)  # of attempts that were killed
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    def publish(self, number: int, write: Callable[[Path], None]) -> bool:
        """Let ``write`` fill a new directory, and publish its files as batch ``number``, unless that was done before.

        Returns whether this call wrote the batch. Raises DataLost if the checkpoint was replaced by another one, or the
        target or its work directory was moved away or replaced since this was opened: the batch is published when both
        are back.
        """
        self._pair.check()
        messages = self._messages_of(number)
        is_new = not self._path(number).exists()
        if is_new:
            batch = self._settle(number, messages, write)
            self.added.append(batch)
        elif (batch := self._settled(number)).messages != messages:
            raise DataLost(f"batch {number} of {self.target} has other messages than {self.checkpoint} now records")
        self._finish(batch)
        return is_new

    def _settle(self, number: int, messages: str, write: Callable[[Path], None]) -> Batch:
        if (newest := max(self._numbers(), default=-1)) >= number:
            raise DataLost(f"{self.checkpoint} is at batch {number}, {self.target} at {newest}: was it replaced?")
        staging = self.work / "staging" / f"{number}-{uuid.uuid4().hex}"
        staging.mkdir(parents=True)
        write(staging)
        sync_files(staging)
        self._sync_checkpoint(number)
        files = tuple(self._files(number, staging))
        batch = Batch(number, messages, str(staging.relative_to(self.work)), files)
        replace_file(self._path(number), json.dumps(asdict(batch)).encode())
        return batch

    def _finish(self, batch: Batch) -> None:
        """Do the remaining steps for a batch that is settled. Raises DataLost if its target is away."""
        self._pair.check()
        parents = set()
        for file in batch.files:
            path = self.target / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self.work / file.staged).rename(path)
            except FileNotFoundError:  # renamed before
                continue
            parents |= {path.parent, *path.parent.parents[: len(Path(file.path).parents) - 1]}
        for parent in parents:
            sync_directory(parent)
        if self._table is not None:
            self._table.add(batch.files, self._pair.identity, batch.number)
        shutil.rmtree(self.work / batch.staging, ignore_errors=True)
        self._path(batch.number - _KEPT_BATCHES).unlink(missing_ok=True)

    def _files(self, number: int, staging: Path) -> Iterator[PublishedFile]:
        for index, path in enumerate(sorted(staging.rglob("*.parquet"))):
            rows = pq.read_metadata(path).num_rows
            final = path.relative_to(staging).with_name(f"batch-{number:08}-{index:04}.parquet")
            yield PublishedFile(str(path.relative_to(self.work)), str(final), rows, path.stat().st_size)

    # --- records of batches -----------------------------------------------------------------

    def _path(self, number: int) -> Path:
        return self._batches / f"{number}.json"

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._batches.glob("*.json"))

    def _settled(self, number: int) -> Batch:
        found = json.loads(self._path(number).read_bytes())
        return Batch(**found | {"files": tuple(PublishedFile(**each) for each in found["files"])})

    def _messages_of(self, number: int) -> str:
        """Return the checkpoint's record of a batch: the last line has the offsets at which the batch ends."""
        return (self.checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()[-1]

    def _sync_checkpoint(self, number: int) -> None:
        """Flush the checkpoint's record of a batch, with the checksum files that Spark keeps beside its files."""
        offsets = self.checkpoint / "offsets"
        for path in (offsets / str(number), self.checkpoint / "metadata"):
            for each in (path, path.with_name(f".{path.name}.crc")):
                with contextlib.suppress(FileNotFoundError):
                    sync_file(each)
        for directory in (offsets, self.checkpoint, self.work, self.work.parent):
            sync_directory(directory)
