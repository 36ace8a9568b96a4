"""Config: what the files in ``config/`` tell an onlooker, however damaged they are."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

_READABLE, _WRITABLE = 4, 2
_LARGEST_TABLE = 64 << 20
"""Bytes."""
_LONGEST_LINE = 1 << 20
"""Of the journal of dead letters: a longer one is no line of ours."""


class TopicUsage(NamedTuple):
    """How many queues of a topic are in use; they are the first ones."""

    written: int
    """New messages go there."""
    read: int
    """Consumers get messages from there."""


def topic_usage(root: str) -> dict[str, TopicUsage]:
    """Return how many queues of each topic take messages and give some; empty if the file cannot be read."""
    try:
        with open(opened(f"{root}/config/topics.json"), "rb") as file:
            table = json.loads(file.read(_LARGEST_TABLE))["topicConfigTable"]
        return {
            name: TopicUsage(
                entry.get("writeQueueNums", 16) if entry.get("perm", 6) & _WRITABLE else 0,
                entry.get("readQueueNums", 16) if entry.get("perm", 6) & _READABLE else 0,
            )
            for name, entry in table.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # `rmq store verify` says what is wrong there
        return {}


def settled_letters(root: str) -> dict[str, set[int]]:
    """Return the queue offsets of the dead letters that were replayed or purged, by topic."""
    settled: dict[str, set[int]] = {}
    for line in _journal(root):
        try:
            entry = json.loads(line)
            offsets = settled.setdefault(entry["topic"], set())
            (offsets.add if entry["done"] in ("replayed", "purged") else offsets.discard)(entry["queue_offset"])
        except (ValueError, KeyError, TypeError):  # torn by a power cut
            continue
    return settled


def opened(path: str) -> int:
    """Open a plain file for reading. Raises OSError for a pipe, which could block, and for a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ENXIO, "not a plain file")
    return descriptor


def _journal(root: str) -> Iterator[bytes]:
    try:
        with open(opened(f"{root}/config/deadLetters.jsonl"), "rb") as lines:
            while len(line := lines.readline(_LONGEST_LINE)) not in (0, _LONGEST_LINE):
                yield line
    except OSError:
        return
