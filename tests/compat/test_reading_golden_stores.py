"""``rmq store`` on directories that a real RocketMQ 4.9.8 wrote."""

from __future__ import annotations

import io
import tarfile
from base64 import b64decode
from pathlib import Path

import orjson
import pytest

from rmqclient.store.inspect.dump import dump
from rmqclient.store.inspect.found import look
from rmqclient.store.inspect.reading import open_reader
from rmqclient.store.inspect.verify import CHECKS, verify
from tests.support.oracle import reference
from tests.support.written import overwrite, run_here, state_of_files

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(params=["store-4.9.8-clean", "store-4.9.8-broker-tx-retry-dlq"])
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    with tarfile.open(GOLDEN / f"{request.param}.tgz") as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    return unpacked


def test_a_brokers_store_has_no_problems_and_is_left_as_it_was(root: Path) -> None:
    before = state_of_files(root)
    assert verify(root) == []
    assert state_of_files(root) == before


def test_every_entry_of_a_brokers_store_is_checked(root: Path) -> None:
    # What is checked is what the reference reader finds, so that no problem means something
    found = look(open_reader(root))
    on_disk = {queue: len(reference.read_consume_queue(root, *queue)) for queue in reference.queues_on_disk(root)}
    assert {(queue.topic, queue.queue_id): len(numbers) for queue, numbers in found.entries.items()} == on_disk
    offset, record = reference.read_commit_log(root)[-1]
    assert found.log.end == offset + record.size


def test_every_record_of_a_brokers_store_is_dumped(root: Path) -> None:
    lines = io.BytesIO()
    assert list(dump(root, lines)) == []
    dumped = [orjson.loads(line) for line in lines.getvalue().splitlines()]
    stored = [record for _, record in reference.read_commit_log(root)]
    assert len(dumped) == len(stored) > 10
    for line, record in zip(dumped, stored, strict=True):
        assert line["properties"] == record.property_map
        assert b64decode(line["body"]) == record.body
        assert line["keys"] == record.property_map.get("KEYS", "").split()
        assert line["tags"] == record.property_map.get("TAGS")
        for name in ("topic", "queue_id", "queue_offset", "commit_log_offset", "store_timestamp"):
            assert line[name] == getattr(record, name)


def test_a_damaged_body_in_a_brokers_store_is_found_and_stepped_over(root: Path) -> None:
    # Given a flipped byte, which only the CRC of the body can tell
    records = reference.read_commit_log(root)
    offset, record = records[3]
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    position = log.index(record.body, offset)
    assert position < offset + record.size
    file = min((root / "commitlog").iterdir())
    overwrite(file, position, bytes((log[position] ^ 1,)))
    # Then verify names the record and its entry
    assert {problem.invariant for problem in verify(root)} == {1, 6}
    assert run_here("verify", root).exit_code == 6
    # And a dump has all others
    done = run_here("dump", root)
    assert done.exit_code == 6
    dumped = [orjson.loads(line)["commit_log_offset"] for line in done.stdout_bytes.splitlines()]
    assert dumped == [other for other, _ in records if other != offset]
    assert done.stderr.startswith(f"{file}, byte {offset}: {record.size} bytes are damaged (the CRC of the body")


def test_a_brokers_store_has_nothing_for_the_checks_of_the_runtime_file(root: Path) -> None:
    reader = open_reader(root)
    assert reader.state is None
    assert [number for number in CHECKS if number >= 8 and list(CHECKS[number](look(reader)))] == []
