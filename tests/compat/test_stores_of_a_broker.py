"""Stores that a real RocketMQ 4.9.7 broker wrote, and what RocketMQ 4.9.8's own store read in each of them.

``make interop ARGS=--keep-stores`` wrote them; they hold plain, batched, compressed, delayed, retried, dead and
transactional messages. One broker was stopped, one killed. Here they are read and written without RocketMQ.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from base64 import b64decode
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import pytest

from rmqclient import Decision, Message, Producer, ReceivedMessage, StoreConfig, TransactionProducer
from rmqclient.admin import Admin
from rmqclient.consuming.reader import Reader
from rmqclient.store import MessageQueue, open_store
from rmqclient.store.config import RetentionConfig, TransactionConfig
from rmqclient.store.inspect.dump import dump
from rmqclient.store.inspect.verify import verify
from rmqclient.store.settings import config_file
from tests.client.conftest import wait_for
from tests.support.lines import Line, committed_by_workload, keys_found, keys_of, lines_of, of_kind, stripped
from tests.support.oracle import reference
from tests.support.stores import after_every_delay, waiting

pytestmark = pytest.mark.guarantee("G10")

GOLDEN = Path(__file__).parent / "golden"

SET_BY_ROCKETMQ = {"UNIQ_KEY", "CLUSTER", "WAIT"}
"""Properties of a plain message that its sender did not give: by the client and by the broker."""


@dataclass(frozen=True, slots=True)
class Golden:
    """A broker's store, unpacked, and what RocketMQ read in it."""

    root: Path
    manifest: list[Line]

    @property
    def records(self) -> list[Line]:
        """Every record, oldest first."""
        return of_kind(self.manifest, "record")


@pytest.fixture(params=["broker-4.9.7-stopped", "broker-4.9.7-killed"])
def golden(tmp_path: Path, request: pytest.FixtureRequest) -> Golden:
    with tarfile.open(GOLDEN / f"{request.param}.tgz") as archive:
        archive.extractall(tmp_path, filter="data")
    text = gzip.decompress((GOLDEN / f"{request.param}.jsonl.gz").read_bytes())
    return Golden(tmp_path / request.param, [orjson.loads(line) for line in text.splitlines()])


def test_there_is_something_of_everything(golden: Golden) -> None:
    assert len(golden.records) > 200
    topics = {record["topic"] for record in golden.records}
    assert {"SCHEDULE_TOPIC_XXXX", "%RETRY%retrying", "%DLQ%retrying", "RMQ_SYS_TRANS_OP_HALF_TOPIC"} < topics
    assert any(record["sys_flag"] & 1 for record in golden.records)


def test_the_oracle_reads_what_rocketmq_read(golden: Golden) -> None:
    assert lines_of(golden.root) == list(map(stripped, golden.records))
    assert reference.check_store(golden.root) == []


def test_every_entry_points_where_rocketmq_found_the_message(golden: Golden) -> None:
    queues = of_kind(golden.manifest, "queue")
    assert len(queues) == len(reference.queues_on_disk(golden.root))
    for queue in queues:
        entries = reference.read_consume_queue(golden.root, queue["topic"], queue["queue_id"])
        assert [offset for offset, _, _ in entries] == queue["commit_log_offsets"]


def test_the_store_dumps_what_rocketmq_read_and_finds_no_problem(golden: Golden) -> None:
    assert verify(golden.root) == []
    dumped = io.BytesIO()
    assert list(dump(golden.root, dumped)) == []
    lines = [orjson.loads(line) for line in dumped.getvalue().splitlines()]
    assert len(lines) == len(golden.records)
    for line, record in zip(lines, golden.records, strict=True):
        for name in ("topic", "queue_id", "queue_offset", "commit_log_offset", "store_timestamp", "body", "properties"):
            assert line[name] == record[name]


def test_every_message_is_read_through_its_queue_once_the_store_is_open(golden: Golden) -> None:
    by_offset = {record["commit_log_offset"]: record for record in golden.records}
    with open_store(golden.root, create=False, housekeeping=False) as store:
        for line in of_kind(golden.manifest, "queue"):
            queue = MessageQueue(line["topic"], line["queue_id"])
            assert (store.topics.min_offset(queue), store.topics.max_offset(queue)) == (line["begin"], line["end"])
            for number, offset in enumerate(line["commit_log_offsets"], line["begin"]):
                found, record = store.messages.at(queue, number), by_offset[offset]
                assert found.commit_log_offset == offset
                assert found.stored_body == b64decode(record["body"])
                assert found.body == reference.opened(found.stored_body, found.sys_flag)
                for name in ("topic", "queue_id", "queue_offset", "size", "flag", "sys_flag", "properties"):
                    assert getattr(found, name) == record[name]
                for name in ("born_timestamp", "store_timestamp"):
                    assert getattr(found, name) == record[name]
                assert found.delivery_attempt == record["reconsume_times"] + 1


@pytest.mark.guarantee("G18")
def test_what_waits_in_a_brokers_store_is_delivered_and_what_it_delivered_is_not(golden: Golden) -> None:
    with open_store(golden.root, create=False, housekeeping=False) as store:
        store.schedule.now_ms = after_every_delay
        while any(waiting(store).values()):
            store.schedule.look()
    records = [record for _, record in reference.read_commit_log(golden.root)]
    old, new = records[: len(golden.records)], records[len(golden.records) :]
    assert {(record.topic, record.body) for record in new} == {("Delayed", b"later"), ("%RETRY%retrying", b"waits")}
    for copy in new:
        (waited,) = [record for record in old if record.topic == reference.SCHEDULE_TOPIC and record.body == copy.body]
        assert copy.queue_id == int(waited.property_map["REAL_QID"])
        expected = replace(waited, topic=copy.topic, queue_id=copy.queue_id, properties=waited.properties + b"\x02")
        placed = {name: getattr(copy, name) for name in ("queue_offset", "commit_log_offset", "store_timestamp")}
        assert copy == replace(expected, **placed)
    assert config_file.read_delay_offsets(golden.root) == {1: 3, 14: 1, 16: 1}
    assert reference.check_store(golden.root) == []


@pytest.mark.guarantee("G19")
def test_what_a_broker_delivered_and_had_not_written_down_is_not_delivered_again(golden: Golden) -> None:
    for name in ("delayOffset.json", "delayOffset.json.bak"):
        (golden.root / "config" / name).unlink(missing_ok=True)
    with open_store(golden.root, create=False, housekeeping=False) as store:
        assert waiting(store)[1] == 0
        store.schedule.look()
        store.schedule.persist()
    assert config_file.read_delay_offsets(golden.root)[1] == 3
    copies = [record for _, record in reference.read_commit_log(golden.root) if record.topic == "Delayed"]
    assert [copy.body for copy in copies].count(b"soon") == 1


def test_opening_and_closing_changes_no_record_and_no_entry(golden: Golden) -> None:
    before = {
        queue: reference.read_consume_queue(golden.root, *queue) for queue in reference.queues_on_disk(golden.root)
    }
    open_store(golden.root, create=False, housekeeping=False).close()
    assert not (golden.root / "abort").exists()
    assert lines_of(golden.root) == list(map(stripped, golden.records))
    for queue, entries in before.items():
        assert reference.read_consume_queue(golden.root, *queue) == entries, queue


def test_every_key_finds_what_rocketmq_found_by_it(golden: Golden) -> None:
    theirs = keys_found(golden.manifest)
    assert len(theirs) > 400
    with open_store(golden.root, create=False) as store:
        ours = {
            (topic, key): sorted(message.commit_log_offset for message in Reader(store).find(topic, key))
            for topic, key in theirs
        }
    assert ours == theirs
    assert ours == keys_of(golden.records)


def test_the_group_goes_on_where_it_was_in_the_broker(golden: Golden) -> None:
    with open_store(golden.root, create=False) as store:
        found = {(queue.topic, queue.queue_id): queue.committed_offset for queue in Admin(store).lag("halfway")}
    committed = committed_by_workload(golden.manifest)
    assert len(committed) == 5
    assert {queue: offset for queue, offset in found.items() if offset} == committed


def test_the_reference_writer_makes_every_record_byte_for_byte(golden: Golden) -> None:
    log = log_of(golden.root)
    for offset, record in reference.read_commit_log(golden.root):
        assert reference.encode(record, crc_property=False) == log[offset : offset + record.size]


def test_what_this_library_writes_differs_from_the_brokers_record_only_in_what_is_assigned(
    golden: Golden, tmp_path: Path
) -> None:
    # Given the messages that a sender gave to the broker, sent again
    theirs = [record for _, record in reference.read_commit_log(golden.root) if record.topic in {"Plain", "Batch"}]
    assert len(theirs) > 200
    with Producer(tmp_path / "ours") as producer:
        for record in theirs:
            producer.send(as_sent(record))
    ours = [record for _, record in reference.read_commit_log(tmp_path / "ours")]
    log = log_of(golden.root)
    for mine, broker in zip(ours, theirs, strict=True):
        # Then the sender's properties are the same
        assert mine.has_crc
        assert not broker.has_crc
        assert given(mine.property_map) == given(broker.property_map)
        # And with what a store and a client assign, in the order of a Java map, so are all other bytes
        assigned = replace(
            mine,
            properties=broker.properties,
            queue_id=broker.queue_id,
            queue_offset=broker.queue_offset,
            commit_log_offset=broker.commit_log_offset,
            sys_flag=broker.sys_flag,  # the client compressed one
            born_timestamp=broker.born_timestamp,
            born_host=broker.born_host,
            born_port=broker.born_port,
            store_timestamp=broker.store_timestamp,
            store_host=broker.store_host,
            store_port=broker.store_port,
        )
        at = broker.commit_log_offset
        assert reference.encode(assigned, crc_property=False) == log[at : at + broker.size]


def as_sent(record: reference.ReferenceRecord) -> Message:
    """Return the message that the sender gave to RocketMQ's client."""
    properties = given(record.property_map)
    tags, keys = properties.pop("TAGS", None), properties.pop("KEYS", "").split()
    return Message(record.topic, record.body, tags=tags, keys=keys, properties=properties, flag=record.flag)


def given(properties: dict[str, str]) -> dict[str, str]:
    """Return the properties without those that RocketMQ or this library sets."""
    return {name: value for name, value in properties.items() if name not in SET_BY_ROCKETMQ}


def log_of(root: Path) -> bytes:
    """Return the whole commit log."""
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


@pytest.mark.guarantee("G31")
@pytest.mark.guarantee("G32")
@pytest.mark.parametrize("decision", [Decision.COMMIT, Decision.ROLLBACK])
def test_a_transaction_that_a_broker_left_pending_is_decided_here(golden: Golden, decision: Decision) -> None:
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> Decision:
        asked.append(message.body)
        return decision

    def sent() -> list[bytes]:
        queues = store.topics.queues("Transactions")
        places = [(queue, number) for queue in queues for number in range(store.topics.max_offset(queue))]
        return [store.messages.at(*place).body for place in places]

    config = StoreConfig(
        commit_log_file_bytes=65_536, consume_queue_file_entries=64, index_slots=64, index_entries=64,
        max_body_bytes=8 << 10, transactions=TransactionConfig(check_interval_ms=50, check_max=1_000),
        retention=RetentionConfig(file_reserved_hours=24 * 365 * 100),
    )  # fmt: skip
    with open_store(golden.root, config) as store:
        assert [half.body for half in store.transactions.pending()] == [b"UNKNOW"]
        assert sent() == [b"COMMIT_MESSAGE"]
        with TransactionProducer(store, group="transacting", check=check):
            wait_for(lambda: not store.transactions.pending(), "it is decided")
        assert asked == [b"UNKNOW"]
        assert sorted(sent()) == [b"COMMIT_MESSAGE", *[b"UNKNOW"] * (decision is Decision.COMMIT)]
    assert reference.check_store(golden.root) == []
