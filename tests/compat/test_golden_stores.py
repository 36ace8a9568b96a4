"""Directories written by a real RocketMQ 4.9.8: the oracle reads every byte of them as the broker did."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord

GOLDEN = Path(__file__).parent / "golden"

CLEAN = "store-4.9.8-clean"
"""Files of 4096 bytes, two rolls; tags, keys, an IPv6 producer and store, one delayed message."""

BROKER = "store-4.9.8-broker-tx-retry-dlq"
"""Three transactions (committed, rolled back, unanswered until given up), three sent back, the last to dead letters."""

DELAY_MS = {0: 1_000, 2: 10_000, 4: 60_000}
"""Delay by queue id of SCHEDULE_TOPIC_XXXX."""


@pytest.fixture
def unpacked(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    with tarfile.open(GOLDEN / f"{request.param}.tgz") as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    return root


both = pytest.mark.parametrize("unpacked", [CLEAN, BROKER], indirect=True)
clean = pytest.mark.parametrize("unpacked", [CLEAN], indirect=True)
broker = pytest.mark.parametrize("unpacked", [BROKER], indirect=True)


@both
def test_a_brokers_store_has_no_problems(unpacked: Path) -> None:
    assert reference.check_store(unpacked) == []


@both
def test_every_record_is_encoded_to_the_bytes_that_the_broker_wrote(unpacked: Path) -> None:
    files = sorted((unpacked / "commitlog").iterdir())
    log = b"".join(path.read_bytes() for path in files)
    for offset, record in reference.read_commit_log(unpacked):
        assert not record.has_crc
        assert reference.encode(record, crc_property=False) == log[offset : offset + record.size]


@both
def test_every_byte_of_the_commit_log_is_a_record_a_blank_record_or_zero(unpacked: Path) -> None:
    files = sorted((unpacked / "commitlog").iterdir())
    log = bytearray(b"".join(path.read_bytes() for path in files))
    for offset, record in reference.read_commit_log(unpacked):
        log[offset : offset + record.size] = bytes(record.size)
    for path in files[:-1]:
        end = int(path.name) + path.stat().st_size
        blank = log.rindex(bytes.fromhex("cbd43194"), 0, end) - 4
        assert int.from_bytes(log[blank : blank + 4], "big") == end - blank
        log[blank : blank + 8] = bytes(8)
    assert reference.is_zeros(bytes(log))


@both
def test_every_message_is_found_through_its_consume_queue(unpacked: Path) -> None:
    by_offset = dict(reference.read_commit_log(unpacked))
    found: list[int] = []
    for topic, queue_id in reference.queues_on_disk(unpacked):
        entries = reference.read_consume_queue(unpacked, topic, queue_id)
        for queue_offset, (commit_log_offset, size, tags_code) in enumerate(entries):
            record = by_offset[commit_log_offset]
            assert (record.topic, record.queue_id, record.queue_offset) == (topic, queue_id, queue_offset)
            assert record.size == size
            assert tags_code == expected_tags_code(record)
            found.append(commit_log_offset)
    assert sorted(found) == sorted(by_offset)


def expected_tags_code(record: ReferenceRecord) -> int:
    if record.topic == reference.SCHEDULE_TOPIC:
        return record.store_timestamp + DELAY_MS[record.queue_id]
    return record.tags_code


@clean
def test_the_clean_store_holds_what_was_sent(unpacked: Path) -> None:
    records = [record for _, record in reference.read_commit_log(unpacked)]
    assert len(records) == 16
    assert records[0].property_map["KEYS"] == "k1 k2"
    assert records[1].born_host == bytes(15) + b"\x01"
    assert records[1].sys_flag == 0x30
    assert [record.queue_offset for record in records if record.topic == "TopicB"] == list(range(12))
    # The delayed message is stored twice, the second time under its own topic and with the same properties
    delayed, delivered = records[2], records[-1]
    assert (delayed.topic, delivered.topic) == (reference.SCHEDULE_TOPIC, "TopicA")
    assert delivered.properties == delayed.properties


@broker
def test_the_brokers_store_holds_transactions_retries_and_a_dead_letter(unpacked: Path) -> None:
    records = [record for _, record in reference.read_commit_log(unpacked)]
    assert len(records) == 13
    (committed,) = [record for record in records if record.sys_flag & 0xC == 0x8]
    half = dict(reference.read_commit_log(unpacked))[committed.prepared_transaction_offset]
    assert (half.topic, half.body) == ("RMQ_SYS_TRANS_HALF_TOPIC", committed.body)
    (dead,) = [record for record in records if record.topic == "%DLQ%G1"]
    first = records[0]
    origin = reference.offset_message_id(first.store_host, first.store_port, first.commit_log_offset)
    assert dead.property_map["ORIGIN_MESSAGE_ID"] == origin
    assert dead.reconsume_times == 1
