"""Compact topics, timed messages, compressed batches and sends by key in a real broker's hands, and back."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqclient import Compression, Message, Producer, PullConsumer
from rmqclient.errors import ConfigMismatch, MessageRejected
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.store.inspect.found import Problem
from rmqclient.store.inspect.verify import verify
from rmqclient.store.waiting.timer import Pending
from tests.interop import our_new_kinds
from tests.interop.our_new_kinds import BATCHED, COMPACT, PLAIN, TIMED, Table
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, Java, broker, conf_of
from tests.support.lines import Line, keys_found, keys_of, lines_of, of_kind, stripped

THEIRS = b"by RocketMQ"
TERMINATED = 143
COMPACT_QUEUES = [MessageQueue(topic, queue_id) for topic, count in COMPACT.items() for queue_id in range(count)]
RECORDS = 2 * len(Compression) + 1
"""Of the topic with batches."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What this library says of the store at one time."""

    table: Table
    pending: list[Pending]
    timed: list[bytes]
    """Bodies of the messages that were delivered."""
    batched: list[bytes]
    problems: list[Problem]
    """When the store was closed again."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A store of ours that a broker had."""

    root: Path
    how: str
    ended_with: int | None
    compacted: dict[Path, bytes]
    records: list[Line]
    """As they were handed over."""
    lines: list[Line]
    """What the broker served."""
    consumed: list[Line]
    """By a group that was new, of the topic with batches."""
    consumed_then: list[Line]
    """By the same group, after a message of the broker's client."""
    sent: dict[tuple[str, int, str], bytes]
    """To compact topics, by the broker's client."""
    before: Seen
    returned: Seen
    """As it came back, with nothing delivered."""
    delivered: Seen
    """When it was opened again and what was due was delivered, twice."""
    found_again: list[bool]
    """Whether what had been sent once was there, each time."""
    table: Table
    """When all but the end of the log was removed."""
    problems: list[Problem]
    """At the end."""


@pytest.fixture(
    scope="module",
    params=[(BROKER_4_9_7, "stopped"), (BROKER_4_9_7, "killed"), (BROKER_5_3_3, "stopped")],
    ids="-".join,
)
def exchanged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, report: list[str]) -> Exchanged:
    variant, how = request.param
    scratch = tmp_path_factory.mktemp("new")
    root = scratch / "store"
    our_new_kinds.write(root)
    before, records, compacted = look(root), lines_of(root), compacted_files(root)
    homes = {(topic, key): queue_id for topic, queue_id, key in before.table}
    sent = [("prices", homes["prices", "key-0"], "key-0"), ("prices", 1, "new"), ("settings", 0, "key-1")]
    with broker(Java(variant, scratch / "home"), conf_of(root)) as running:
        lines = running.run("inspect", "readers", PLAIN, BATCHED, TIMED, *COMPACT)
        consumed = running.run("consume", "readers", RECORDS, BATCHED)
        places = [(PLAIN, 0, "new"), (BATCHED, 0, "new"), *sent]
        running.run("send", THEIRS.decode(), *(f"{topic}:{queue_id}:{key}" for topic, queue_id, key in places))
        consumed_then = running.run("consume", "readers", 1, BATCHED)
        running.stop() if how == "stopped" else running.kill()
        ended_with = running.server.exit_status
    returned = look(root)
    found_again = [deliver(root), deliver(root)]
    delivered = look(root)
    table = remove(root)
    report.append(
        f"new kinds of messages, {variant} {how}: {len(of_kind(lines, 'message'))} messages served, "
        f"{len(consumed)} records of a topic with batches consumed and {len(consumed_then)} later, "
        f"{len(returned.pending)} of {len(before.pending)} still wait, {len(table)} values"
    )
    values = dict.fromkeys(sent, THEIRS)
    served = (lines, consumed, consumed_then)
    return Exchanged(
        root,
        how,
        ended_with,
        compacted,
        records,
        *served,
        values,
        before,
        returned,
        delivered,
        found_again,
        table,
        verify(root),
    )


def look(root: Path) -> Seen:
    with open_store(root, create=False, housekeeping=False) as store:
        table, timed = our_new_kinds.table(store), our_new_kinds.bodies(store, TIMED)
        pending, opened = list(store.timer.pending()), batched(store)
    return Seen(table, pending, timed, opened, verify(root))


def compacted_files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (root / "compaction").rglob("*") if path.is_file()}


def batched(store: MessageStore) -> list[bytes]:
    with PullConsumer(store, group="batches") as consumer:
        return [message.body for message in consumer.pull(MessageQueue(BATCHED, 0), 0, limit=1_000).messages]


def deliver(root: Path) -> bool:
    """Deliver what is due, and send what was sent once; return whether it was found."""
    with open_store(root, create=False, housekeeping=False) as store, Producer(store) as producer:
        for _ in range(3):
            store.timer.look()
        return our_new_kinds.send_once(producer)


def remove(root: Path) -> Table:
    """Let retention remove what the log has of the compact topics; return what they have then."""
    with open_store(root, create=False, housekeeping=False) as store, Producer(store) as producer:
        for _ in range(40):
            producer.send(Message("filler", b"x" * 4_096))
        our_new_kinds.remove_files(store)
        assert all(store.compaction.log_low(queue) == store.topics.max_offset(queue) for queue in COMPACT_QUEUES)
        return our_new_kinds.table(store)


def messages(exchanged: Exchanged, topic: str) -> list[Line]:
    return [line for line in of_kind(exchanged.lines, "message") if line["topic"] == topic]


def test_the_broker_opens_the_store_and_a_stopped_one_leaves_it_clean(exchanged: Exchanged) -> None:
    assert exchanged.before.problems == exchanged.returned.problems == exchanged.delivered.problems == []
    assert exchanged.problems == []
    if exchanged.how == "stopped":
        assert exchanged.ended_with == TERMINATED


def test_the_broker_serves_every_record_that_the_log_has_and_finds_it_by_its_keys(exchanged: Exchanged) -> None:
    for topic in (PLAIN, TIMED, *COMPACT):
        found = sorted(map(stripped, messages(exchanged, topic)), key=lambda line: line["commit_log_offset"])
        assert found == [line for line in exchanged.records if line["topic"] == topic], topic
    assert len(messages(exchanged, "prices")) > our_new_kinds.KEYS
    assert not messages(exchanged, "settings")
    assert keys_found(exchanged.lines) == keys_of(of_kind(exchanged.lines, "message"))


def test_a_broker_looks_at_no_compacted_file_and_makes_none(exchanged: Exchanged) -> None:
    # 5.x makes directories of its own there, and beside it for its timer, if it is not told otherwise
    assert {path.name for path in (exchanged.root / "compaction").iterdir()} == set(COMPACT)
    assert {path.relative_to(exchanged.root).parts[1] for path in exchanged.compacted} == set(COMPACT)
    assert not (exchanged.root / "timerwheel").exists()


def test_a_compressed_batch_is_one_message_for_rocketmqs_client(exchanged: Exchanged) -> None:
    for found in (messages(exchanged, BATCHED), exchanged.consumed):
        assert sorted(line["queue_offset"] for line in found) == list(range(RECORDS))
        batches = [line for line in found if line["queue_offset"] % 2]
        assert all(line["properties"]["INNER_NUM"] == str(our_new_kinds.IN_A_BATCH) for line in batches)
        for line, compression in zip(sorted(batches, key=lambda line: line["queue_offset"]), Compression, strict=True):
            content = b64decode(line["body"])  # opened, and the messages of the batch one behind the other
            assert all(body in content for body in our_new_kinds.batch_of(compression))


def test_a_group_gets_what_comes_behind_a_compressed_batch(exchanged: Exchanged) -> None:
    assert [(line["queue_offset"], b64decode(line["body"])) for line in exchanged.consumed_then] == [(RECORDS, THEIRS)]


def test_the_messages_of_a_batch_come_one_by_one_when_the_store_is_back(exchanged: Exchanged) -> None:
    assert len(exchanged.before.batched) == len(Compression) * our_new_kinds.IN_A_BATCH + len(Compression) + 1
    assert exchanged.returned.batched == [*exchanged.before.batched, THEIRS]


def test_a_compact_topic_has_its_table_and_what_came(exchanged: Exchanged) -> None:
    written = {(topic, key): value for (topic, _, key), value in exchanged.before.table.items()}
    assert written == our_new_kinds.expected_table()
    assert exchanged.before.table | exchanged.sent == exchanged.returned.table == exchanged.table
    assert compacted_files(exchanged.root) != exchanged.compacted  # what came was compacted, too


def test_a_compact_topic_is_still_compact(exchanged: Exchanged) -> None:
    with open_store(exchanged.root, create=False, housekeeping=False) as store, Producer(store) as producer:
        assert {queue.topic for queue in store.topics.compact_queues()} == set(COMPACT)
        with pytest.raises(MessageRejected, match="no key"):
            producer.send(Message("prices", b"1"))
        with pytest.raises(ConfigMismatch):
            producer.create_topic("prices", COMPACT["prices"], cleanup_policy="delete")


def test_what_was_sent_once_is_not_sent_again(exchanged: Exchanged) -> None:
    assert exchanged.found_again == [True, True]


def test_no_broker_delivers_a_timed_message_and_all_are_pending_when_the_store_is_back(exchanged: Exchanged) -> None:
    assert exchanged.returned.timed == exchanged.before.timed == [our_new_kinds.DELIVERED]
    assert exchanged.returned.pending == exchanged.before.pending
    assert len(exchanged.returned.pending) == len(our_new_kinds.FAR) + len(our_new_kinds.SOON)


def test_timed_messages_that_are_due_are_delivered_once_and_the_others_wait(exchanged: Exchanged) -> None:
    assert Counter(exchanged.delivered.timed) == Counter([our_new_kinds.DELIVERED, *our_new_kinds.SOON])
    left = [(waiting.message_id, waiting.due_ms) for waiting in exchanged.delivered.pending]
    assert left == [(waiting.message_id, waiting.due_ms) for waiting in exchanged.before.pending[-3:]]
