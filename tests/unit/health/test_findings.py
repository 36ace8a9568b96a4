"""A reading sees what an open store sees, and findings say what is wrong in words."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.delivery.process_queue import FlowControl
from rmqclient.health import findings
from rmqclient.health.findings import CRITICAL, OK, WARNING, Finding
from rmqclient.health.limits import Limits
from rmqclient.store import MemberInfo, MessageQueue, WorkerState, WorkerStatus, layout, open_store
from rmqclient.store.files import file_lock
from rmqclient.store.observe import shared_file, states
from rmqclient.store.observe.observation import Call
from rmqclient.store.observe.reading import Reading
from rmqclient.store.observe.shared_file import Unreadable
from tests.workers.supervised import eventually


def handle(message: object) -> None: ...


def found(root: Path, check: str, limits: Limits | None = None) -> Finding:
    with Reading(str(root)) as seen:
        return next(each for each in findings.look(seen, limits) if each.check == check)


def test_the_bytes_and_the_codes_are_those_of_their_owners() -> None:
    assert [
        shared_file.BROKER_BYTE,
        shared_file.HOUSEKEEPER_BYTE,
        shared_file.MEMBER_BYTES,
        shared_file.WORKER_BYTES,
    ] == [
        file_lock.BROKER_BYTE,
        file_lock.HOUSEKEEPER_BYTE,
        file_lock.MEMBER_BYTES,
        file_lock.WORKER_BYTES,
    ]
    assert tuple(each.value for each in FlowControl) == states.FLOW_CONTROLS


def test_a_queue_that_is_made_between_two_looks_is_left_out(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store, Producer(store) as producer, Reading(str(tmp_path / "store")) as seen:
        old = producer.send(Message("orders", b"1")).queue
        store.groups.find_or_add("billing", store.topics.slot(old), 0)
        before = seen.queues()
        new = producer.send(Message("refunds", b"1")).queue
        store.groups.find_or_add("billing", store.topics.slot(new), 0)
        assert [each.queue.topic for each in seen._groups.rows(before, [], 0)] == ["orders"]
        assert [each.queue.topic for each in seen.group_queues()] == ["orders", "refunds"]


def test_what_is_no_store_and_what_another_version_opened_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no store of this host"):
        Reading(str(tmp_path / "nothing"))
    with Producer(tmp_path / "store") as producer:
        producer.send(Message("orders", b"1"))
    shared = tmp_path / "store" / "shared"
    content = bytearray(shared.read_bytes()[: layout.RUNTIME_SIZE])
    content[layout.RUNTIME_HEADER.at["fingerprint"]] ^= 1
    shared.write_bytes(content)
    with pytest.raises(Unreadable, match="another version"):
        Reading(str(tmp_path / "store"))
    shared.write_bytes(b"short")
    with pytest.raises(Unreadable, match="not whole"):
        Reading(str(tmp_path / "store"))


def test_a_reading_tells_offsets_members_times_and_locks_as_the_store_does(tmp_path: Path) -> None:
    app = App(tmp_path)
    app.handler("orders", group="billing")(handle)
    with open_store(tmp_path) as store:
        with Producer(store) as producer:
            sent = [producer.send(Message("orders", b"%d" % number)) for number in range(20)]
        consumer = PushConsumer(store, app.handlers, client_id="me")
        with closing(consumer), Reading(str(tmp_path)) as seen:
            consumer.start()
            eventually(lambda: not any(each.lag for each in seen.group_queues()), "all handled")
            queues = {each.queue for each in seen.queues()}
            for each in sent:
                assert each.queue in queues
                message = store.messages.at(each.queue, each.queue_offset)
                assert seen.records.stored_ms(each.queue, each.queue_offset) == message.store_timestamp
            assert seen.records.stored_ms(sent[0].queue, 1_000) is None
            assert {(each.group, each.client_id) for each in seen.members()} == {("billing", "me")}
            assert all(each.owner is not None for each in seen.group_queues())
            assert (seen.processes.is_open, seen.processes.has_housekeeper) == (True, True)
            assert found(tmp_path, "lag").state == "idle"
            assert found(tmp_path, "housekeeper").level == OK
        assert found(tmp_path, "lag").state == "idle"
    assert found(tmp_path, "housekeeper").state == "none: the store is closed"


def test_a_group_that_waits_says_why(tmp_path: Path) -> None:
    with Producer(tmp_path) as producer:
        for number in range(12):
            producer.send(Message("orders", b"%d" % number), sharding_key="one")
    with Admin(tmp_path) as admin:
        admin.seek("billing", "orders", "earliest")
        assert found(tmp_path, "lag").state.startswith("no members, lag 12, the oldest ")
        assert found(tmp_path, "lag").level == WARNING
        assert found(tmp_path, "lag").remedy == "start its workers, or `rmq group rm billing` if nobody needs it"
        assert found(tmp_path, "lag", Limits(lag_crit=12)).level == CRITICAL
        admin.pause("billing")
        assert found(tmp_path, "lag").remedy == "rmq group resume billing"
        assert found(tmp_path, "lag", Limits(group="bilings")).state == "no group bilings ever consumed"
    with open_store(tmp_path) as store:
        queue = next(each for each in store.topics.queues("orders") if store.topics.max_offset(each))
        store.topics.raise_min_offset(queue, 5)
        assert found(tmp_path, "lag").state.startswith("behind retention: 5 lost, lag 7")
        assert found(tmp_path, "lag").level == CRITICAL


def test_a_failed_flush_and_a_full_disk_are_critical(tmp_path: Path) -> None:
    with open_store(tmp_path, housekeeping=False) as store:
        assert found(tmp_path, "store", Limits(disk_warn=1.1, disk_crit=1.1)).level == OK
        assert found(tmp_path, "store", Limits(disk_warn=0.0, disk_crit=1.1)).level == WARNING
        store.state.disk_full = 1
        assert found(tmp_path, "store").state.startswith("disk full")
        store.state.poisoned = 5
        assert found(tmp_path, "store").state == "poisoned: a flush failed with EIO"


def call(topic: str, queue_id: int, queue_offset: int, age_s: float) -> Call:
    member = MemberInfo(0, 1, "g", topic, "me", 9, "*")
    return Call("g", MessageQueue(topic, queue_id), queue_offset, queue_offset, 9, age_s, member)


@pytest.mark.parametrize(
    ("worker", "running", "state"),
    [
        (40.0, [call("orders", 2, 7731, 39.6)], "hung 40 s in orders 2:7731"),
        (40.0, [call("orders", 2, 7731, 3.0), call("a", 0, 1, 40.0)], "hung 40 s in a 0:1"),
        (40.0, [], "hung 40 s"),
        (3.0, [call("orders", 2, 7731, 3.0)], None),
    ],
)
def test_a_handler_that_runs_too_long_is_named_by_its_message(
    worker: float, running: list[Call], state: str | None
) -> None:
    rows = [WorkerStatus(0, 9, 8, WorkerState.READY, 100.0, worker * 1000, 1, 0, 0)]
    assert findings.hung(rows, running, 30.0) == ([] if state is None else [(9, state)])


def test_the_worst_state_of_its_queues_is_that_of_a_group() -> None:
    queues = [
        states.queue_state(True, 0, False, True),
        states.queue_state(True, 0, False, True, flow_control=FlowControl.SPAN.code),
        states.queue_state(False, 0, False, True),
    ]
    assert queues == ["running", "flow control: span", "idle"]
    assert states.group_state(queues, members=1, lag=6) == "flow control: span"
    assert states.group_state(queues, members=0, lag=6) == "no members"
    assert states.group_state(["paused"], members=0, lag=6) == "paused, no members"
    assert states.group_state([], members=1, lag=0) == "idle"
    assert states.group_state(["idle"], members=1, lag=0, waiting=20) == "waiting: 20 for a retry"
    assert states.group_state(["idle"], members=0, lag=0, waiting=20) == "no members"
    assert states.group_state(["running"], members=1, lag=3, waiting=20) == "running"


@pytest.mark.guarantee("G93")
@pytest.mark.parametrize("name", ["shared", "lock", "config/deadLetters.jsonl", "commitlog/00000000000000000000"])
def test_a_pipe_or_an_endless_file_where_a_file_should_be_does_not_hold_up_a_check(tmp_path: Path, name: str) -> None:
    # Given a store that was closed, in which a file was replaced by a pipe that nobody writes to
    with open_store(tmp_path) as store:
        appender = store.appenders.make(
            lambda topic: store.topics.create(topic, 1), lambda body: bytes(str(body), "utf-8")
        )
        appender.append(Message("%DLQ%billing", b"1"))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)

    # Then a check ends, and says so if it needs the file
    if name in ("shared", "lock"):
        with pytest.raises(Unreadable):
            Reading(str(tmp_path))
        return
    assert found(tmp_path, "dlq").values[0].value == 1

    # And the same for a file of a terabyte of holes
    path.unlink()
    path.touch()
    os.truncate(path, 1 << 40)
    assert found(tmp_path, "dlq").values[0].value == 1
