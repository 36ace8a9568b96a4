"""Removed topics: where the queues of topics that were removed begin, in ``<root>/config/removedTopics.json``.

The messages of a removed topic stay in the log until retention removes them. Its queues keep their offsets, and go on
if the topic is made again, so a queue offset divides what was removed from what came later. RocketMQ does not read the
file: a broker forgets the queues themselves.

A log that has lost its end gives such an offset to another message. So no queue begins beyond its end, and the first
opening after such a loss says so in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.settings import config_file, document

REMOVED_TOPICS_FILE = Path("config", "removedTopics.json")

_QUEUES = "queues"


def read_begins(root: Path) -> dict[MessageQueue, int]:
    """Return the queue offset below which each queue was removed. Raises StoreCorrupt."""
    path = root / REMOVED_TOPICS_FILE
    return {
        MessageQueue(topic, queue_id): begin
        for topic, entry in document.table(path, document.read(path) or {}, _QUEUES).items()
        for queue_id, begin in config_file.queue_offsets(path, topic, entry).items()
    }


def write_begins(root: Path, begins: Mapping[MessageQueue, int]) -> None:
    """Give queues these begins; those of others stay. For the holder of ``TOPIC_BYTE``. Raises StoreFull."""
    table: dict[str, dict[str, int]] = {}
    for queue, begin in sorted((read_begins(root) | dict(begins)).items()):
        table.setdefault(queue.topic, {})[str(queue.queue_id)] = begin
    document.write(root / REMOVED_TOPICS_FILE, document.render({_QUEUES: table}))


def hidden(root: Path, queues: Mapping[MessageQueue, tuple[int, int]]) -> dict[MessageQueue, tuple[int, int]]:
    """Return the (min, max) queue offsets of recovered queues without the messages that were removed; for the opening.

    Raises StoreCorrupt, and StoreFull if the log has lost its end and there is no room to say so.
    """
    begins = read_begins(root)
    ends = {queue: queues.get(queue, (0, 0))[1] for queue in begins}
    if lost := {queue: end for queue, end in ends.items() if begins[queue] > end}:
        write_begins(root, lost)
    return {queue: (min(max(low, begins.get(queue, 0)), high), high) for queue, (low, high) in queues.items()}
