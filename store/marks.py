"""Marks: ``<root>/marks.jsonl``, what was done to a store and by whom: pauses, seeks, replays, deploys, dead workers.

One line of JSON each, in the order in which they were written, by any process::

    {"at_ms": 1795909560123, "kind": "pause", "subject": "mail", "author": "ada", "words": "SMTP is down", "pid": 4711}

A line is written by one append, so lines of several processes do not mix. A process that is killed in between leaves a
line that is no JSON, which readers step over; the next one begins a new line. Lines are not flushed: a power cut can
take the last ones.

Invariant, checked by ``rmq store verify``:

19. Each line is a mark, or the begin of one whose process was killed.

A file that has become longer than :data:`MOST_BYTES` gets the name ``marks.old.jsonl``, in the place of the one
before, and a new one begins. So the two have about twice that at most, and the last few thousand marks are there.

A mark is written when what it tells of is done. It never fails that: a full disk costs the mark.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmqclient.store import clock
from rmqclient.store.errors import QueueError, StoreUnusable
from rmqclient.store.files.file_lock import HISTORY_BYTE, LockFile
from rmqclient.store.files.sharing import open_for_owner
from rmqclient.store.threads.logs import Log

MARKS_FILE: Final = "marks.jsonl"
OLD_MARKS_FILE: Final = "marks.old.jsonl"
MOST_BYTES: Final = 512 << 10
KINDS: Final = (
    "opened", "start", "stop", "scale", "worker", "pause", "resume", "seek", "replay", "purge", "cancel", "commit",
    "rollback", "retention",
)  # fmt: skip
"""A store opened after a kill; a supervisor, which started or stopped, or has other workers; a worker that died, hangs,
or is started again; a group paused, resumed or moved; dead letters sent again or put
aside; a delivery cancelled; a transaction decided by hand; files of the log removed."""

_A_STORE_HAS = ("store.json", "commitlog")
_MOST_WORDS = 500
_RENAMING_S = 0.2
_LONGEST_LINE = 16 << 10
"""Bytes: more than a mark has."""
_BEGIN = b'{"at_ms":'
_LATEST_MS = 253_370_764_800_000
"""The year 9999, with which the calendar ends."""

_log = Log(__name__)


class Mark(NamedTuple):
    """Something that was done."""

    at_ms: int
    """ms since 1970."""
    kind: str
    """One of :data:`KINDS`."""
    subject: str
    """A group, a worker, or the store."""
    author: str
    """The user of the operating system that did it, or the address of a client of ``rmq serve``; empty for what the
    store does by itself."""
    words: str
    pid: int
    """Of the process that wrote it, in its PID namespace."""


class Marks:
    """Writes the marks of one store; safe for threads."""

    def __init__(self, root: Path, lock: LockFile) -> None:
        self._root = root
        self._lock = lock

    def write(self, kind: str, subject: str, words: str = "", *, author: str | None = None) -> None:
        """Write a mark; ``author`` is the user of this process if it is not given. A disk that fails is logged."""
        author = user() if author is None else author
        mark = Mark(clock.wall_ms(), kind, subject, author, words[:_MOST_WORDS], os.getpid())
        try:
            self._lock.check_in_place()
            self._append(json.dumps(mark._asdict(), ensure_ascii=False, separators=(",", ":")).encode(errors="replace"))
        except (QueueError, OSError) as error:
            _log.warning("%s of %s is not in %s: %s", kind, subject, MARKS_FILE, error)

    def _append(self, line: bytes) -> None:
        path = self._root / MARKS_FILE
        descriptor = open_for_owner(str(path), os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, b"\n" * is_torn + line + b"\n")
        finally:
            os.close(descriptor)
        if size > MOST_BYTES:
            self._begin_anew(path)

    def _begin_anew(self, path: Path) -> None:
        # Without the lock, or if another process has just done it, the next mark does it.
        with suppress(QueueError, FileNotFoundError), self._lock.held(HISTORY_BYTE, _RENAMING_S):
            if path.stat().st_size > MOST_BYTES:
                path.replace(self._root / OLD_MARKS_FILE)


def marks_of(root: Path | str, since_ms: int = 0, kinds: Collection[str] = KINDS) -> list[Mark]:
    """Return the marks of a store from a time on, in the order in which they were written, without a lock.

    What is no mark, such as a line that a killed process has left, is stepped over. Raises StoreUnusable where no
    store is.
    """
    if not any(Path(root, name).exists() for name in _A_STORE_HAS):
        raise StoreUnusable(f"{root} holds no store: neither {' nor '.join(_A_STORE_HAS)}")
    marks = (mark for name in (OLD_MARKS_FILE, MARKS_FILE) for mark in _read(Path(root, name)))
    return [mark for mark in marks if mark.at_ms >= since_ms and mark.kind in kinds]


def bad_lines(path: Path) -> Iterator[int]:
    """Yield the bytes at which lines begin that are no marks, and that no killed process has left.

    What was cut off, by a kill or a full disk, begins as a mark and does not end as one; a power cut leaves zeros.
    """
    with suppress(FileNotFoundError), path.open("rb") as lines:
        at, is_begin = 0, True
        while line := lines.readline(_LONGEST_LINE):
            text = line.strip(b"\0\n")
            is_cut = text.startswith(_BEGIN[: len(text)]) and not text.endswith(b"}")
            if text and is_begin and not is_cut and not _is_mark(text):
                yield at
            at, is_begin = at + len(line), line.endswith(b"\n")


def user() -> str:
    """Return the name of the user of this process; its number if it has no name, as in many containers."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def _read(path: Path) -> Iterator[Mark]:
    with suppress(FileNotFoundError), path.open("rb") as lines:
        while line := lines.readline(_LONGEST_LINE):
            with suppress(ValueError, TypeError, RecursionError):
                yield _mark(json.loads(line))


def _is_mark(text: bytes) -> bool:
    try:
        _mark(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def _mark(fields: dict[str, Any]) -> Mark:
    mark = Mark(**fields)
    if not all(isinstance(value, kind) for value, kind in zip(mark, (int, str, str, str, str, int), strict=True)):
        raise TypeError(f"{fields} is no mark")
    if not 0 <= mark.at_ms < _LATEST_MS:
        raise ValueError(f"{mark.at_ms} ms is no time")
    return mark
