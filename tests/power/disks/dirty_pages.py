"""What of a store is not flushed yet, seen from outside by a process that has not opened it."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

from rmqclient.store import layout
from tests.power.disks.machine import PAGE, write_pages
from tests.power.life import CONFIG


def frontiers(root: Path) -> tuple[int, int]:
    """Read ``flushed_to`` and ``published_to`` of the runtime file; zeros when there is none."""
    try:
        with (root / "shared").open("rb") as file:
            header = file.read(layout.RUNTIME_HEADER.size)
    except FileNotFoundError:
        return 0, 0
    if len(header) < layout.RUNTIME_HEADER.size:
        return 0, 0
    words = layout.RUNTIME_HEADER.read(header)
    return words["flushed_to"], words["published_to"]


def log_parts(root: Path, start: int, end: int) -> list[tuple[Path, int, int]]:
    """Return the commit log files of a part of the log, with the part of each."""
    size = CONFIG.commit_log_file_bytes
    parts = []
    for base in range(start - start % size, end, size):
        path = root / "commitlog" / f"{base:020d}"
        if path.exists():
            parts.append((path, max(start - base, 0), min(end - base, size)))
    return parts


def write_some(root: Path, start: int, end: int, chance: random.Random) -> None:
    """Let a random half of the pages of a part of the log, and of the queue and index files, reach the disk."""
    for path, first, last in log_parts(root, start, end):
        pages = range(first - first % PAGE, last, PAGE)
        write_pages(path, chance.sample(pages, -(-len(pages) // 2)))
    derived = sorted([*root.glob("consumequeue/*/*/*"), *root.glob("index/*")])
    for path in chance.sample(derived, len(derived) // 2):
        with suppress(FileNotFoundError):  # the store removes files meanwhile
            write_pages(path, range(0, path.stat().st_size, PAGE))


def is_no_prefix(root: Path, start: int, end: int) -> bool:
    """Tell whether a page of the log reached the disk while a whole page before it did not."""
    missed = False
    for path, first, last in log_parts(root, start, end):
        content = path.read_bytes()
        for at in range(-(-first // PAGE) * PAGE, last - PAGE + 1, PAGE):
            is_zero = content.count(0, at, at + PAGE) == PAGE
            if missed and not is_zero:
                return True
            missed = missed or is_zero
    return False
