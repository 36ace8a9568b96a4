"""Stores that this library wrote, closed or left behind by ``kill -9``, in a real RocketMQ and back."""

from __future__ import annotations

import shutil
import subprocess
import sys
from base64 import b64decode
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from rmqclient.admin import Admin
from rmqclient.store import open_store
from rmqclient.store.errors import StoreInUse
from tests.interop import our_store
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, STORE_4_9_8, TOP, Java, broker, conf_of
from tests.support.lines import Line, by_place, keys_found, keys_of, lines_of, of_kind, stripped
from tests.support.oracle import reference
from tests.support.stores import after_every_delay, in_an_hour, waiting


@dataclass(frozen=True, slots=True)
class Handed:
    """A store of ours that was handed over, and what came of it."""

    written: Written
    """As it was handed over; RocketMQ had a copy."""
    copy: Path
    """As RocketMQ left it."""
    records: list[Line]
    lines: list[Line]
    pulled: list[Line] = field(default_factory=list)
    consumed: list[Line] = field(default_factory=list)
    refusal: str = ""
    """What this library said when it was asked to open the store, too."""


@dataclass(frozen=True, slots=True)
class Written:
    """A store of ours, and how many messages of each queue of orders were handled, by the word of the handler."""

    root: Path
    handled: dict[int, int]


@pytest.fixture(scope="module", params=["closed", "killed"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    root = tmp_path_factory.mktemp("ours") / request.param
    how = "close" if request.param == "closed" else "stay"
    command = [sys.executable, "-m", "tests.interop.our_store", str(root), how]
    with subprocess.Popen(command, cwd=TOP, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            handled = orjson.loads(child.stdout.readline())
            if how == "close":
                assert child.wait(60) == 0
        finally:
            child.kill()
    assert (root / "abort").exists() == (how == "stay")
    return Written(root, {int(queue_id): count for queue_id, count in handled.items()})


@pytest.fixture(scope="module", params=[STORE_4_9_8, BROKER_5_3_3])
def loaded(
    written: Written, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, report: list[str]
) -> Handed:
    """The store, read through DefaultMessageStore."""
    scratch = tmp_path_factory.mktemp("loaded")
    copy = Path(shutil.copytree(written.root, scratch / "a store"))
    (scratch / "broker.conf").write_text(conf_of(copy), encoding="utf-8")
    lines = Java(request.param, scratch / "home").run("read-store", scratch / "broker.conf")
    found = keys_found(lines)
    report.append(
        f"{written.root.name} store of ours in DefaultMessageStore of {request.param}: "
        f"{len(of_kind(lines, 'record'))} records, {len(of_kind(lines, 'queue'))} queues, "
        f"{sum(map(bool, found.values()))} of {len(found)} keys"
    )
    return Handed(written, copy, lines_of(written.root), lines)


@pytest.fixture(scope="module", params=[BROKER_4_9_7, BROKER_5_3_3])
def served(
    written: Written, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, report: list[str]
) -> Handed:
    """The store, served by a broker whose configuration is what ``rmq store broker-conf`` prints."""
    scratch = tmp_path_factory.mktemp("served")
    copy = Path(shutil.copytree(written.root, scratch / "a store"))
    with broker(Java(request.param, scratch / "home"), conf_of(copy)) as running:
        lines = running.run("inspect", our_store.GROUP, *our_store.TOPICS)
        pulled = running.run("pull", our_store.GROUP, "orders")
        consumed = running.run("consume", our_store.GROUP, len(pulled), "orders")
        with pytest.raises(StoreInUse) as refused:
            open_store(copy, create=False)
        running.stop()
    found = keys_found(lines)
    report.append(
        f"{written.root.name} store of ours in {request.param}: {len(of_kind(lines, 'message'))} messages, "
        f"{len(of_kind(lines, 'viewed'))} viewed by id, {sum(map(bool, found.values()))} of {len(found)} keys, "
        f"{sum(queue['committed'] > 0 for queue in of_kind(lines, 'queue'))} committed offsets, "
        f"{len(pulled)} pulled and {len(consumed)} pushed from there"
    )
    return Handed(written, copy, lines_of(written.root), lines, pulled, consumed, str(refused.value))


def test_the_store_has_several_files_of_each_kind(written: Written) -> None:
    root = written.root
    # Or else the other tests would prove less than they say
    assert reference.check_store(root) == []
    assert len(list((root / "commitlog").iterdir())) >= 5
    assert len(list((root / "consumequeue" / "audit" / "0").iterdir())) >= 5
    assert len(lines_of(root)) == our_store.MESSAGES + 10


def test_every_record_is_read_by_rocketmqs_store_field_by_field(loaded: Handed) -> None:
    records = of_kind(loaded.lines, "record")
    assert list(map(stripped, records)) == loaded.records
    assert all("__CRC32#" in record["properties"] for record in records)


def test_rocketmqs_store_keeps_the_whole_log(loaded: Handed) -> None:
    (log,) = of_kind(loaded.lines, "log")
    last = loaded.records[-1]
    assert (log["begin"], log["end"]) == (0, last["commit_log_offset"] + last["size"])


def test_every_queue_is_read_by_rocketmqs_store_to_its_end(loaded: Handed) -> None:
    queues = of_kind(loaded.lines, "queue")
    assert len(queues) == sum(our_store.TOPICS.values())
    for queue in queues:
        offsets = [
            record["commit_log_offset"]
            for record in loaded.records
            if (record["topic"], record["queue_id"]) == (queue["topic"], queue["queue_id"])
        ]
        assert queue["commit_log_offsets"] == offsets
        assert (queue["begin"], queue["end"]) == (0, len(offsets))


def test_every_key_is_found_by_rocketmqs_store(loaded: Handed) -> None:
    assert keys_found(loaded.lines) == keys_of(loaded.records)


def test_every_message_is_served_by_a_broker_by_its_place_and_by_its_id(served: Handed) -> None:
    assert by_place(of_kind(served.lines, "message")) == served.records
    assert by_place(of_kind(served.lines, "viewed")) == served.records


def test_every_key_is_found_by_a_broker(served: Handed) -> None:
    assert keys_found(served.lines) == keys_of(served.records)


def test_every_committed_offset_is_known_to_a_broker(served: Handed) -> None:
    theirs = {
        queue["queue_id"]: queue["committed"] for queue in of_kind(served.lines, "queue") if queue["topic"] == "orders"
    }
    assert theirs == served.written.handled
    assert sum(theirs.values()) == our_store.ORDERS_HANDLED


def test_consumers_of_a_broker_get_what_the_group_has_not_handled(served: Handed) -> None:
    handled = served.written.handled
    left = [
        record
        for record in served.records
        if record["topic"] == "orders" and record["queue_offset"] >= handled[record["queue_id"]]
    ]
    assert len(left) == our_store.MESSAGES // 3 + 10 - our_store.ORDERS_HANDLED
    assert by_place(served.pulled) == left
    assert by_place(served.consumed) == left


def test_a_store_that_a_broker_has_open_is_refused(served: Handed) -> None:
    assert "RocketMQ broker" in served.refusal


def test_the_store_comes_back_with_the_brokers_progress(served: Handed) -> None:
    assert not (served.copy / "abort").exists()
    assert lines_of(served.copy)[: len(served.records)] == served.records
    with open_store(served.copy, create=False) as store:
        behind = {queue.queue_id: queue.lag for queue in Admin(store).lag(our_store.GROUP) if queue.topic == "orders"}
    assert behind == dict.fromkeys(range(4), 0)


# --- delayed messages -----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[BROKER_4_9_7, BROKER_5_3_3])
def delivered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, report: list[str]) -> Handed:
    """A store in which delayed messages wait, served by a broker until those that are due soon were consumed."""
    scratch = tmp_path_factory.mktemp("delayed")
    root = scratch / "ours"
    our_store.write_delayed(root)
    written = Written(root, {})
    copy = Path(shutil.copytree(root, scratch / "a store"))
    expected = len(our_store.DELIVERED_HERE) + len(our_store.DUE_SOON)
    with broker(Java(request.param, scratch / "home"), conf_of(copy)) as running:
        consumed = running.run("consume", our_store.GROUP, expected, our_store.DELAYED)
        running.stop()
    report.append(f"delayed messages of ours in {request.param}: {len(consumed)} consumed there")
    return Handed(written, copy, lines_of(root), [], consumed=consumed)


def test_a_broker_delivers_what_waits_here_and_nothing_that_was_delivered(delivered: Handed) -> None:
    bodies = sorted(b64decode(line["body"]) for line in delivered.consumed)
    assert bodies == sorted([*our_store.DELIVERED_HERE, *our_store.DUE_SOON])
    waited = {line["body"]: line for line in delivered.records if line["topic"] == reference.SCHEDULE_TOPIC}
    for line in delivered.consumed:
        original = waited[line["body"]]
        assert line["queue_id"] == int(original["properties"]["REAL_QID"])
        assert stripped(line)["properties"] == original["properties"]
        assert line["store_timestamp"] >= original["store_timestamp"]


def test_what_a_broker_has_delivered_is_not_delivered_here_and_the_rest_is(delivered: Handed, tmp_path: Path) -> None:
    root = Path(shutil.copytree(delivered.copy, tmp_path / "back"))
    before = len(lines_of(root))
    with open_store(root, create=False, housekeeping=False) as store:
        store.schedule.now_ms = after_every_delay
        while any(waiting(store).values()):
            store.schedule.look()
    new = lines_of(root)[before:]
    assert [(line["topic"], b64decode(line["body"])) for line in new] == [(our_store.DELAYED, our_store.DUE_LATER)]
    assert reference.check_store(root) == []


# --- transactions ---------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[BROKER_4_9_7, BROKER_5_3_3])
def answered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, report: list[str]) -> Handed:
    """A store with pending transactions, served by a broker until its producers had answered for all of them."""
    scratch = tmp_path_factory.mktemp("transactions")
    root = scratch / "ours"
    our_store.write_transactions(root)
    written = Written(root, {})
    copy = Path(shutil.copytree(root, scratch / "a store"))
    # RocketMQ 5 writes its operations 3 s late; one that asked more often would commit a message again and again
    interval = 1_000 if request.param == BROKER_4_9_7 else 10_000
    conf = f"{conf_of(copy)}transactionCheckInterval={interval}\ntransactionTimeOut=100\n"
    with broker(Java(request.param, scratch / "home"), conf) as running:
        asked = running.run("answer", our_store.PRODUCERS, len(our_store.PENDING))
        consumed = running.run("consume", our_store.GROUP, 3, our_store.TRANSACTIONS)
        running.stop()
    report.append(
        f"transactions of ours in {request.param}: {len(asked)} asked about there, {len(consumed)} consumed there"
    )
    return Handed(written, copy, lines_of(root), of_kind(asked, "asked"), consumed=consumed)


def test_a_broker_asks_about_what_is_pending_here_and_about_nothing_that_was_decided(answered: Handed) -> None:
    assert sorted(line["body"].encode() for line in answered.lines) == sorted(our_store.PENDING)
    assert {line["topic"] for line in answered.lines} == {our_store.TRANSACTIONS}


def test_consumers_of_a_broker_get_what_was_committed_here_and_there_once(answered: Handed) -> None:
    bodies = sorted(b64decode(line["body"]) for line in answered.consumed)
    assert bodies == [b"commit fresh", b"commit here", b"commit renewed"]


def test_what_a_broker_has_decided_is_decided_here(answered: Handed, tmp_path: Path) -> None:
    root = Path(shutil.copytree(answered.copy, tmp_path / "back"))
    before = len(lines_of(root))
    with open_store(root, create=False, housekeeping=False) as store:
        assert store.transactions.pending() == []
        store.transactions.now_ms = in_an_hour
        store.transactions.check()
        assert store.transactions.given_up() == []
    assert len(lines_of(root)) == before
    assert reference.check_store(root) == []
