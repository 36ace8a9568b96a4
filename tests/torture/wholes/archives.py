"""Archivers killed at random steps while a store grows, is cleaned, closed, damaged and opened again.

Each life of a store has up to forty rounds. In a round messages are appended; then an archiver runs and is killed at a
random step, or comes to its end and retention removes files behind it, or, now and then, before it. Sometimes the store
is closed, loses its runtime file or its consume queues, and is recovered. After each round everything is read, through
a view that was there before, a new one, and now and then a plain copy of the archive.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from rmqclient.archive import uploads as archive_uploads
from rmqclient.archive.archiver import archive
from rmqclient.archive.manifest import NAME
from rmqclient.archive.view import ArchivedView, JointView, open_view
from rmqclient.store import MessageStore, layout, open_store
from rmqclient.store.inspect.verify import verify
from rmqclient.store.inspect.view import LocalView, View
from tests.support.archived import Row, force, killed_at, more, rows, rows_of
from tests.support.written import SMALL
from tests.torture.result import Result, Rig

CLAIM = (
    "A store and its archive are read as one log, message for message, whoever is killed and whatever retention has "
    "removed since it was archived; nothing is uploaded twice, and a plain copy of the archive is a store."
)

_ROUNDS_OF_A_LIFE = 40
_STEPS = 40
_PART_BYTES = 12_288
_ENTRY = layout.CONSUME_QUEUE_ENTRY


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Do so many rounds; ``seed`` says what happens in each."""
    chance = random.Random(seed)
    result = Result(CLAIM, dict.fromkeys(("messages", "kills", "cleanings", "losses", "recoveries", "copies"), 0))
    usual, archive_uploads.READ_BYTES = archive_uploads.READ_BYTES, _PART_BYTES
    try:
        for life in range(-(-rounds // _ROUNDS_OF_A_LIFE)):
            _Life(chance, scratch / str(life), result).live(min(_ROUNDS_OF_A_LIFE, rounds - life * _ROUNDS_OF_A_LIFE))
    finally:
        archive_uploads.READ_BYTES = usual
    return result


class _Life:
    """One store and its archive."""

    def __init__(self, chance: random.Random, directory: Path, result: Result) -> None:
        self._chance = chance
        self._root = directory / "store"
        self._target = directory / "archive"
        self._copy = directory / "copy"
        self._result = result
        self._every: dict[tuple[object, int], Row] = {}
        self._inodes: dict[str, int] = {}
        self._kept: View | None = None

    def live(self, rounds: int) -> None:
        store = open_store(self._root, SMALL, housekeeping=False)
        for number in range(rounds):
            store = self._round(store)
            self._look(number)
        store.close()
        shutil.rmtree(self._root.parent)

    def _round(self, store: MessageStore) -> MessageStore:
        more(store, self._chance.randrange(5, 120))
        before = len(self._every)
        self._every |= {row[:2]: row for row in rows(LocalView(self._root))}
        self._count("messages", len(self._every) - before)
        event = self._chance.random()
        if event < 0.5:
            self._count("kills", killed_at(self._chance.randrange(1, _STEPS), self._root, str(self._target)))
        else:
            if event > 0.95:
                self._count("losses")
                force(store, keep=self._chance.randrange(1, 4))
            archive(self._root, str(self._target))
            if event > 0.7:
                self._count("cleanings")
                force(store, keep=self._chance.randrange(1, 4))
        return self._reopened(store) if self._chance.random() < 0.2 else store

    def _reopened(self, store: MessageStore) -> MessageStore:
        knows_its_ends = _knows_its_ends(store)
        store.close()
        self._kept = None
        if self._chance.random() < 0.5 and knows_its_ends:
            shutil.rmtree(self._root / "consumequeue")
        if self._chance.random() < 0.5:
            (self._root / "shared").unlink()
        self._count("recoveries")
        return open_store(self._root, SMALL, housekeeping=False)

    def _look(self, number: int) -> None:
        if not (self._target / NAME).exists():
            return
        archived, local = ArchivedView(str(self._target)), LocalView(self._root)
        there = {base // SMALL.commit_log_file_bytes for base in archived.log_files()}
        in_archive = {key for key, row in self._every.items() if _at(row) // SMALL.commit_log_file_bytes in there}
        begin = local.log_range().start
        in_either = in_archive | {key for key, row in self._every.items() if _at(row) >= begin}
        if self._kept is None:
            self._kept = open_view(str(self._root), str(self._target))
            assert isinstance(self._kept, JointView)
        self._kept.release()
        self._compare(number, "the kept view", self._kept, in_either)
        self._compare(number, "the archive", archived, in_archive)
        for name, inode in self._inodes.items():
            if (self._target / name).stat().st_ino != inode:
                self._result.problems.append(f"round {number}: {name} was uploaded twice")
        self._inodes = {f"commitlog/{f.file}": 0 for f in archived.log_files().values()}
        self._inodes = {name: (self._target / name).stat().st_ino for name in self._inodes}
        if self._chance.random() < 0.1:
            self._look_at_copy(number)

    def _look_at_copy(self, number: int) -> None:
        archive(self._root, str(self._target))
        archived = ArchivedView(str(self._target))
        if (
            len(archived.log_files()) * SMALL.commit_log_file_bytes != len(archived.log_range())
            or not archived.queues()
        ):
            return  # something was lost, or nothing is there
        shutil.copytree(self._target, self._copy)
        if problems := verify(self._copy):
            self._result.problems.append(f"round {number}: a copy of the archive has {problems[0]}")
        shutil.rmtree(self._copy)
        self._count("copies")

    def _compare(self, number: int, what: str, view: View, expected: set[tuple[object, int]]) -> None:
        found = _readable(view)
        if found.keys() != expected:
            lost, invented = len(expected - found.keys()), len(found.keys() - expected)
            self._result.problems.append(f"round {number}: {what} lacks {lost} messages and has {invented} too many")
        if any(self._every[key] != row for key, row in found.items() if key in self._every):
            self._result.problems.append(f"round {number}: {what} has other bytes")

    def _count(self, name: str, happened: int = 1) -> None:
        figure = self._result.figures[name]
        assert isinstance(figure, int)
        self._result.figures[name] = figure + happened


def _knows_its_ends(store: MessageStore) -> bool:
    """Tell whether every queue has a message left in the log.

    Of a queue whose messages were all removed only the consume queue files tell where it ended: it begins at 0 again
    without them, and queue offsets no longer name one message each.
    """
    return all(
        store.compaction.oldest(queue) < end or not end
        for queue, end in zip(store.topics.all_queues(), store.topics.max_offsets(), strict=True)
    )


def _readable(view: View) -> dict[tuple[object, int], Row]:
    """Return every message that can be read; what was lost to retention raises FileNotFoundError."""
    found: dict[tuple[object, int], Row] = {}
    for queue in view.queues():
        for offset in view.offsets(queue):
            try:
                (row,) = rows_of(view, queue, range(offset, offset + 1))
            except FileNotFoundError:
                continue
            found[row[:2]] = row
    return found


def _at(row: Row) -> int:
    return int(_ENTRY.unpack_from(row[2])[0])


RIG = Rig("archives", 2_000, run)
