"""Contents: what a store directory consists of, by name.

A store may lie among other files: a project may call ``App(".")``, and have a ``config/`` of its own. What is not of
the store is never overwritten and never removed. So a directory that is not a store yet is refused if it has a file
where the store would make one. A directory *is* a store when it has ``store.json``, which is written before everything
else, or the commit log of a broker.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rmqclient.store.errors import StoreUnusable
from rmqclient.store.files.file_lock import CONTENT
from rmqclient.store.files.mapped_file import SCRATCH_PREFIX
from rmqclient.store.settings.store_settings import STORE_SETTINGS_FILE

LOG: Final = "commitlog"
_LOG_FILE: Final = re.compile("[0-9]{20}")
_DOCUMENT: Final = r"\.json(\.bak)?(\.tmp)?"

FILES: Final = (
    "abort",
    "checkpoint",
    "clock",
    "clock.building",
    "epochFileCheckpoint",
    "follower.json",
    "followers.json",
    "history.rings",
    "identity.json",
    "lineage.json",
    "marks.jsonl",
    "marks.old.jsonl",
    "replaced.json",
    "replica.json",
    "replication.json",
    "shared",
    "shared.building",
    "shared.reserve",
    "store.json",
    "timer.done",
)
"""Files in the root of a store, without the lock."""

DIRECTORIES: Final = {
    LOG: _LOG_FILE.pattern,
    "consumequeue": r"[^/]+/[0-9]+/[0-9]{20}",
    "index": "[0-9]{17}",
    "config": rf"(topics|consumerOffset|delayOffset|subscriptionGroup|kvConfig|consumerFilter|consumerOrderInfo"
    rf"|removedTopics){_DOCUMENT}|deadLetters\.jsonl",
    "compaction": r"[^/]+/[0-9]+/compacted(\.tmp|\.damaged-[0-9]+)?",
    "diverged": r"unfinished|[0-9]{20}-[0-9]+(\.[0-9]+)?\.log",
    "quarantined": r"[^/]+",
}
"""Directories in the root of a store, and which files in them are the store's."""

_MADE_BEFORE: Final = frozenset(("clock", "clock.building", "store.json"))


def is_store(root: Path) -> bool:
    """Tell whether a directory is a store: one of this library, or one that a broker has begun."""
    if (root / STORE_SETTINGS_FILE).exists():
        return True
    try:
        names = os.listdir(root / LOG)  # noqa: PTH208 - a log may have many files
    except OSError:
        return False
    return not names or any(map(_LOG_FILE.fullmatch, names))  # a backup that lies beside log files takes nothing away


def check_no_others(root: Path) -> None:
    """Raise StoreUnusable for a directory that is not a store and has files of others where a store has its own."""
    strange = sorted(name for name in FILES if name not in _MADE_BEFORE and os.path.lexists(root / name))
    if _is_of_others(root / "lock"):
        strange.append("lock")
    if strange and not is_store(root):  # looked at last: another process may have begun the store meanwhile
        raise StoreUnusable(
            f"{root} holds no store, and other files where a store has its own: {', '.join(strange)}. Nothing was "
            f"written. Give a directory of its own, such as {root / 'store'}"
        )


def own_files(root: Path) -> Iterator[Path]:
    """Yield what a store consists of: files first, then the directories that they leave empty; not the lock."""
    for name in FILES:
        yield from (path for path in _with_backups(root / name) if path.is_file() and not path.is_symlink())
    yield from root.glob(f"{SCRATCH_PREFIX}*")
    for name, pattern in DIRECTORIES.items():
        directory = root / name
        if directory.is_symlink():
            continue
        for path, directories, files in os.walk(directory, topdown=False):
            for each in (Path(path, file) for file in files):
                if re.fullmatch(pattern, each.relative_to(directory).as_posix()):
                    yield each
            yield from (Path(path, each) for each in directories)
        yield directory


def _with_backups(path: Path) -> tuple[Path, ...]:
    """What is read in the place of a document that is missing comes first, with what a killed writer left."""
    return (*(path.with_name(path.name + suffix) for suffix in (".bak.tmp", ".tmp", ".bak")), path)


def _is_of_others(lock: Path) -> bool:
    """Tell whether a file of this name is no lock file; one that may not be read, or is no file, is refused later."""
    try:
        with open(lock, "rb", opener=_open_without_waiting) as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(len(CONTENT) + 1) not in (b"", CONTENT)
    except OSError:
        return False


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe in its place would be waited for
