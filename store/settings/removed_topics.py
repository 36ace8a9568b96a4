"""Removed topics: how far the messages of each were removed, in ``<root>/config/removedTopics.json``.

The messages of a removed topic stay in the log until retention removes them. If the topic is made again, its queues go
on, so a place in the log divides what was removed from what came later: the end of the log at the removal. It also
holds if a broker, which does not read the file, has begun the queues anew.

A log that has lost its end gives such a place to another message. So no place lies beyond the end of the log, and the
first opening after such a loss says so in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.settings import document

REMOVED_TOPICS_FILE = Path("config", "removedTopics.json")

_TOPICS = "topics"


def read_ends(root: Path) -> dict[str, int]:
    """Return by topic the commit log offset below which its messages were removed. Raises StoreCorrupt."""
    path = root / REMOVED_TOPICS_FILE
    ends: dict[str, int] = {}
    for topic, end in document.table(path, document.read(path) or {}, _TOPICS).items():
        if type(end) is not int or end < 0:
            raise StoreCorrupt(path, 0, f"topic {topic!r}: {end!r} is no commit log offset")
        ends[topic] = end
    return ends


def lowered_ends(root: Path, log_end: int) -> dict[str, int]:
    """Return what :func:`read_ends` returns, none beyond the end of the log; for the opening.

    Raises StoreCorrupt, and StoreFull if the log has lost its end and there is no room to say so.
    """
    ends = read_ends(root)
    if any(end > log_end for end in ends.values()):
        ends = {topic: min(end, log_end) for topic, end in ends.items()}
        write_ends(root, ends)
    return ends


def write_ends(root: Path, ends: Mapping[str, int]) -> None:
    """Note these ends; those of other topics stay. For the holder of ``TOPIC_BYTE``. Raises StoreCorrupt, StoreFull."""
    document.write(root / REMOVED_TOPICS_FILE, document.render({_TOPICS: read_ends(root) | dict(ends)}))
