"""Stores that a real broker wrote, stopped or killed: opened by this library, used, and handed back."""

from __future__ import annotations

import shutil
import threading
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import MessageQueue, MessageStore, open_store
from tests.interop import brokers_store
from tests.interop.brokers_store import Written
from tests.interop.rocketmq import BROKER_4_9_7, Java, broker, conf_of
from tests.support.lines import Line, by_place, committed_by_workload, keys_found, keys_of, lines_of, of_kind, stripped
from tests.support.oracle import reference

NEW = 25
"""Messages that this library adds, to a topic of the broker and to one of its own."""

GROUP = "halfway"


@pytest.fixture(scope="module", params=["stopped", "killed"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, report: list[str]) -> Written:
    made = brokers_store.write(tmp_path_factory.mktemp("brokers"), request.param)
    report.append(
        f"{request.param} store of {BROKER_4_9_7}: {len(of_kind(made.manifest, 'record'))} records, "
        f"{len(of_kind(made.manifest, 'queue'))} queues, {len(keys_found(made.manifest))} keys"
    )
    if request.config.getoption("--keep-stores"):
        brokers_store.keep(made)
    return made


@dataclass(frozen=True, slots=True)
class Returned:
    """A broker's store that this library used and handed back."""

    written: Written
    root: Path
    handled: list[ReceivedMessage]
    """By the group, of the topic Plain, before anything was added."""
    at_handover: list[Line]
    """Every record when the broker got it back."""
    lines: list[Line]
    consumed: list[Line]


@pytest.fixture(scope="module")
def returned(written: Written, tmp_path_factory: pytest.TempPathFactory, report: list[str]) -> Returned:
    scratch = tmp_path_factory.mktemp("returned")
    root = Path(shutil.copytree(written.root, scratch / "store"))
    with open_store(root, create=False) as store:
        handled = consume(store, "Plain", len(left_for(written, "Plain")))
        with Producer(store) as producer:
            for number in range(NEW):
                message = Message("Plain", f"new {number}", tags="new", keys=[f"n{number}"])
                producer.send(message)
                producer.send(Message("Ours", f"ours {number}", keys=[f"o{number}"]))
    at_handover = lines_of(root)
    topics = ("Plain", "Batch", "Ours", "Delayed", "Retried", "Transactions", "%DLQ%retrying")
    with broker(Java(BROKER_4_9_7, scratch / "home"), conf_of(root)) as running:
        lines = running.run("inspect", GROUP, *topics)
        expected = len(left_for(written, "Batch")) + 2 * NEW
        consumed = running.run("consume", GROUP, expected, "Plain", "Batch", "Ours")
        running.stop()
    report.append(
        f"{written.left} store of {BROKER_4_9_7} here and back: {len(handled)} handled here, {2 * NEW} added, "
        f"{len(of_kind(lines, 'message'))} messages served, {len(consumed)} consumed there"
    )
    return Returned(written, root, handled, at_handover, lines, consumed)


def left_for(written: Written, topic: str) -> list[Line]:
    """Return the messages of a topic that the group had not consumed when the broker ended."""
    committed = committed_by_workload(written.manifest)
    return [
        stripped(record)
        for record in of_kind(written.manifest, "record")
        if record["topic"] == topic and record["queue_offset"] >= committed[topic, record["queue_id"]]
    ]


def consume(store: MessageStore, topic: str, expected: int) -> list[ReceivedMessage]:
    """Handle what the group has left of a topic; a message more than expected would be noticed, too."""
    app = App()
    handled: list[ReceivedMessage] = []
    came = threading.Semaphore(0)

    @app.handler(topic, group=GROUP)
    def handle(message: ReceivedMessage) -> None:
        handled.append(message)
        came.release()

    consumer = PushConsumer(store, app.handlers)
    consumer.start()
    for _ in range(expected):
        assert came.acquire(timeout=30), f"{len(handled)} of {expected}"
    assert not came.acquire(timeout=0.5)
    consumer.stop_taking()
    assert consumer.drain(10) == 0
    consumer.close()
    return handled


def test_the_broker_has_kept_everything_that_a_broker_keeps(written: Written) -> None:
    records = of_kind(written.manifest, "record")
    topics = {record["topic"] for record in records}
    assert {"Plain", "Batch", "Delayed", "Retried", "Transactions"} < topics
    assert {"%RETRY%retrying", "%DLQ%retrying", "SCHEDULE_TOPIC_XXXX"} < topics
    assert {"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"} < topics
    assert len(list((written.root / "commitlog").iterdir())) >= 2
    assert any(record["sys_flag"] & 1 for record in records)  # compressed
    assert any(record["reconsume_times"] for record in records)
    assert any(record["prepared_transaction_offset"] for record in records)


def test_our_oracle_reads_what_rocketmqs_store_reads(written: Written) -> None:
    assert lines_of(written.root) == list(map(stripped, of_kind(written.manifest, "record")))


def test_every_message_of_a_broker_is_read_through_its_queue(written: Written, tmp_path: Path) -> None:
    root = Path(shutil.copytree(written.root, tmp_path / "store"))
    by_offset = {record["commit_log_offset"]: record for record in of_kind(written.manifest, "record")}
    with open_store(root, create=False, housekeeping=False) as store:  # without it, what is due now stays undelivered
        for line in of_kind(written.manifest, "queue"):
            queue = MessageQueue(line["topic"], line["queue_id"])
            assert (store.topics.min_offset(queue), store.topics.max_offset(queue)) == (line["begin"], line["end"])
            for number, offset in enumerate(line["commit_log_offsets"], line["begin"]):
                found, record = store.messages.at(queue, number), by_offset[offset]
                for name in ("topic", "queue_id", "queue_offset", "size", "flag", "sys_flag", "properties"):
                    assert getattr(found, name) == record[name]
                assert found.commit_log_offset == offset
                assert (found.born_timestamp, found.store_timestamp) == (
                    record["born_timestamp"],
                    record["store_timestamp"],
                )
                assert found.stored_body == b64decode(record["body"])
                assert found.body == reference.opened(found.stored_body, found.sys_flag)
    assert not (root / "abort").exists()


def test_opening_changes_no_record_and_no_entry_of_a_broker(written: Written, tmp_path: Path) -> None:
    root = Path(shutil.copytree(written.root, tmp_path / "store"))
    open_store(root, create=False, housekeeping=False).close()
    assert lines_of(root) == lines_of(written.root)
    for queue in reference.queues_on_disk(written.root):
        before = reference.read_consume_queue(written.root, *queue)
        assert reference.read_consume_queue(root, *queue)[: len(before)] == before, queue
    for name in ("delayOffset.json", "subscriptionGroup.json"):
        path = Path("config", name)
        assert (root / path).read_bytes() == (written.root / path).read_bytes()


def test_a_group_goes_on_here_from_the_brokers_offsets(returned: Returned) -> None:
    left = left_for(returned.written, "Plain")
    assert 0 < len(left) < brokers_store.MESSAGES + 2
    assert sorted(message.commit_log_offset for message in returned.handled) == [
        line["commit_log_offset"] for line in left
    ]


def test_the_broker_has_its_own_messages_and_ours_when_it_gets_the_store_back(returned: Returned) -> None:
    old = list(map(stripped, of_kind(returned.written.manifest, "record")))
    assert returned.at_handover[: len(old)] == old
    assert len(returned.at_handover) == len(old) + 2 * NEW
    served = by_place(of_kind(returned.lines, "message"))
    sent = [
        line for line in returned.at_handover if line["topic"] in {"Plain", "Ours", "Batch"} and not line["sys_flag"]
    ]
    assert [line for line in served if line["topic"] in {"Plain", "Ours", "Batch"} and not line["sys_flag"]] == sent
    assert by_place(of_kind(returned.lines, "viewed")) == served


def test_the_broker_finds_its_own_messages_and_ours_by_every_key(returned: Returned) -> None:
    found = keys_found(returned.lines)
    assert {("Plain", f"n{number}") for number in range(NEW)} < set(found)
    assert found == keys_of(of_kind(returned.lines, "message"))


def test_the_group_goes_on_there_with_what_was_left_and_with_ours(returned: Returned) -> None:
    new = returned.at_handover[-2 * NEW :]
    expected = left_for(returned.written, "Batch") + [line for line in new if line["topic"] in {"Plain", "Ours"}]
    assert by_place(returned.consumed) == expected


def test_no_delayed_message_comes_early_and_no_transaction_is_decided(returned: Returned) -> None:
    messages = of_kind(returned.lines, "message")
    assert {b64decode(line["body"]) for line in messages if line["topic"] == "Delayed"} == {b"soon"}
    assert {b64decode(line["body"]) for line in messages if line["topic"] == "Transactions"} == {b"COMMIT_MESSAGE"}
    assert {b64decode(line["body"]) for line in messages if line["topic"] == "%DLQ%retrying"} == {b"dies"}
