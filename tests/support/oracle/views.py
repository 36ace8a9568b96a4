"""A store seen from outside: as a reader that repairs nothing sees it, and after every process has left.

Both views decode the bytes with the slow reference codec. From the store itself they take only the frontiers, because
the frontiers say how far a reader may look.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from rmqclient.store import OPERATION_TOPIC, MessageQueue, MessageStore, layout
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.stores import QUEUE, abandon


def published_records(store: MessageStore) -> list[ReferenceRecord]:
    """Return every record below ``published_to``; fails when anything else stands there."""
    end = store.state.published_to
    log = log_bytes(store.root)
    records = []
    position = 0
    while position < end:
        found = reference.decode(log, position)
        assert found is not None, f"published up to {end}, but no whole record stands at {position}"
        if isinstance(found, ReferenceRecord):
            stands_at = found.commit_log_offset
            assert stands_at == position, f"the record at {position} says that it stands at {stands_at}"
            records.append(found)
        else:
            end_of_file = (position + found.size) % store.config.commit_log_file_bytes == 0
            assert end_of_file, f"the blank record at {position} ends at {position + found.size}, inside a file"
        position += found.size
    assert position == end, f"published up to {end}, inside the record that ends at {position}"
    return records


def queued_records(
    store: MessageStore, queue: MessageQueue = QUEUE, published: list[ReferenceRecord] | None = None
) -> list[ReferenceRecord]:
    """Return the records of the entries below ``max_offset``; fails when an entry is not whole or not right."""
    count = store.topics.max_offset(queue)
    if published is None:
        published = published_records(store)
    records = {record.commit_log_offset: record for record in published}
    entries = entry_bytes(store.root, queue)
    found = []
    for number in range(count):
        offset, size, code = reference.ENTRY.unpack_from(entries, number * reference.ENTRY.size)
        record = records.get(offset)
        assert record is not None, f"entry {number} of {count} points to {offset}, where no published record stands"
        place = (record.topic, record.queue_id, record.queue_offset)
        assert place == (queue.topic, queue.queue_id, number), f"entry {number} of {queue}: a record of {place}"
        right = (record.size, record.entry_code)
        assert (size, code) == right, f"entry {number} of {queue} has size and code {size, code}, its record {right}"
        found.append(record)
    return found


def bodies(records: list[ReferenceRecord]) -> list[bytes]:
    """Return the bodies alone."""
    return [record.body for record in records]


def stored_bodies(root: Path) -> list[bytes]:
    """Return the bodies of every record of a store that nobody has open, in the order of the log."""
    return [record.body for _, record in reference.read_commit_log(root)]


def log_bytes(root: Path) -> bytes:
    """Return all commit log files, one behind the other."""
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").glob("*")))


def entry_bytes(root: Path, queue: MessageQueue) -> bytes:
    """Return all files of a consume queue, one behind the other."""
    directory = root / "consumequeue" / queue.topic / str(queue.queue_id)
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*")))


def power_cut_image(root: Path, target: Path, end: int, file_bytes: int) -> Path:
    """Copy a store as it can stand after a power cut: of the log nothing at ``end`` or above has reached the disk,
    of everything else all, and the runtime file is no longer this boot's."""
    shutil.copytree(root, target, ignore=shutil.ignore_patterns("shared"))
    for path in (target / "commitlog").iterdir():
        keep = min(max(end - int(path.name), 0), file_bytes)
        content = path.read_bytes()
        path.write_bytes(content[:keep] + bytes(file_bytes - keep))
    return target


def lose_last_operation(store: MessageStore) -> None:
    """Leave the store as a power cut does that takes the operation of the last transaction, and not its message."""
    last = published_records(store)[-1]
    assert last.topic == OPERATION_TOPIC
    abandon(store)
    (store.root / "shared").unlink()
    for path in (store.root / "commitlog").iterdir():
        keep = max(last.commit_log_offset - int(path.name), 0)
        content = path.read_bytes()
        path.write_bytes(content[:keep].ljust(len(content), b"\0"))


def acknowledged_bits(store: MessageStore, group: str) -> set[int]:
    """Return the queue offsets above the committed one that the group-queue table has as finished."""
    slot = store.groups.find(group, store.topics.slot(QUEUE))
    assert slot is not None
    committed, bits = slot.committed_offset, slot.acknowledged_bits()
    window = range(committed, committed + layout.ACK_WINDOW)
    return {offset for offset in window if bits >> offset % layout.ACK_WINDOW & 1}
