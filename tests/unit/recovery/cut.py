"""Stores after a power cut, and what recovery must make of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from rmqclient.store import Message, open_store
from rmqclient.store.files.file_queue import FileQueue, MappingCache
from rmqclient.store.log.consume_queue import ConsumeQueues
from rmqclient.store.recovery import recovery
from rmqclient.store.recovery.recovery import FirstSteps
from tests.support.oracle import reference
from tests.support.oracle.views import bodies, published_records, queued_records, stored_bodies
from tests.support.stores import SMALL, TOPIC, appender_of, body_of

FLUSHED = 30
"""Messages below the durable mark."""

MESSAGES = 40
BODY = 1_000
BODIES = [body_of(number, BODY) for number in range(MESSAGES)]


def places(root: Path) -> list[tuple[int, int]]:
    """Return offset and size of each record."""
    return [(offset, record.size) for offset, record in reference.read_commit_log(root)]


def overwrite(root: Path, offset: int, content: bytes) -> None:
    base = offset - offset % SMALL.commit_log_file_bytes
    with (root / "commitlog" / f"{base:020d}").open("r+b") as file:
        file.seek(offset - base)
        file.write(content)


def flip(root: Path, offset: int) -> None:
    base = offset - offset % SMALL.commit_log_file_bytes
    byte = (root / "commitlog" / f"{base:020d}").read_bytes()[offset - base]
    overwrite(root, offset, bytes((byte ^ 0x10,)))


def content_of(root: Path) -> dict[str, bytes]:
    """Return every file of the store that is not of the runtime, without the marks, which openings write."""
    passed_over = ("shared", "lock", "checkpoint", "marks.jsonl")
    kept = [path for path in root.rglob("*") if path.is_file() and path.name not in passed_over]
    return {str(path.relative_to(root)): path.read_bytes() for path in kept}


def check_cut(root: Path, expected: list[bytes]) -> None:
    """Open a store; it must hold just the expected messages, and go on behind them."""
    with open_store(root, housekeeping=False) as store:
        assert bodies(published_records(store)) == expected
        assert bodies(queued_records(store)) == expected
        result = appender_of(store).append(Message(TOPIC, b"after"))
        assert result.queue_offset == len(expected)
    assert reference.check_store(root) == []
    assert stored_bodies(root) == [*expected, b"after"]


def delete_all(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def survey_of(root: Path) -> recovery.Survey:
    mappings = MappingCache(100)
    log_files = FileQueue(root / "commitlog", SMALL.commit_log_file_bytes, scratch=root, mappings=mappings)
    return recovery.survey(root, log_files, ConsumeQueues(root, SMALL.consume_queue_file_bytes, mappings), FirstSteps())
