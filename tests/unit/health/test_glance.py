"""A glance sees what an open store sees, and findings say what is wrong in words."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.delivery.process_queue import FlowControl
from rmqclient.health import findings, words
from rmqclient.health.findings import CRITICAL, OK, WARNING, Finding
from rmqclient.health.limits import Limits
from rmqclient.local import glance
from rmqclient.local.glance import Glance, Running, Unreadable, Worker
from rmqclient.store import WorkerState, layout, open_store
from rmqclient.store.files import file_lock
from tests.workers.supervised import eventually


def handle(message: object) -> None: ...


def found(root: Path, check: str, limits: Limits | None = None) -> Finding:
    with Glance(str(root)) as seen:
        return next(each for each in findings.look(seen, limits) if each.check == check)


def test_the_bytes_and_the_codes_are_those_of_their_owners() -> None:
    assert [glance.BROKER_BYTE, glance.HOUSEKEEPER_BYTE, glance.MEMBER_BYTES, glance.WORKER_BYTES] == [
        file_lock.BROKER_BYTE,
        file_lock.HOUSEKEEPER_BYTE,
        file_lock.MEMBER_BYTES,
        file_lock.WORKER_BYTES,
    ]
    assert tuple(each.value for each in FlowControl) == words.FLOW_CONTROLS
    assert list(glance._WORKER_STATES) == [each.name.lower() for each in WorkerState]


def test_the_layouts_that_a_glance_loads_by_their_path_are_those_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rmqclient.store.layout")
    loaded = glance._layouts()
    assert loaded is not layout
    assert (
        loaded.RUNTIME_FINGERPRINT == layout.RUNTIME_FINGERPRINT
    )  # which importing the kernel has compared with its own


def test_a_queue_that_is_made_between_two_looks_is_left_out(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store, Producer(store) as producer, Glance(str(tmp_path / "store")) as seen:
        old = producer.send(Message("orders", b"1")).queue
        store.groups.find_or_add("billing", store.topics.slot(old), 0)
        queues = seen.queues()
        new = producer.send(Message("refunds", b"1")).queue
        store.groups.find_or_add("billing", store.topics.slot(new), 0)
        assert [each.queue.topic for each in seen.group_queues(queues)] == ["orders"]
        assert [each.queue.topic for each in seen.group_queues()] == ["orders", "refunds"]


def test_what_is_no_store_and_what_another_version_opened_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no store of this host"):
        Glance(str(tmp_path / "nothing"))
    with Producer(tmp_path / "store") as producer:
        producer.send(Message("orders", b"1"))
    shared = tmp_path / "store" / "shared"
    content = bytearray(shared.read_bytes()[: layout.RUNTIME_SIZE])
    content[layout.RUNTIME_HEADER.at["fingerprint"]] ^= 1
    shared.write_bytes(content)
    with pytest.raises(Unreadable, match="another version"):
        Glance(str(tmp_path / "store"))
    shared.write_bytes(b"short")
    with pytest.raises(Unreadable, match="not whole"):
        Glance(str(tmp_path / "store"))


def test_a_glance_tells_offsets_members_times_and_locks_as_the_store_does(tmp_path: Path) -> None:
    app = App(tmp_path)
    app.handler("orders", group="billing")(handle)
    with open_store(tmp_path) as store:
        with Producer(store) as producer:
            sent = [producer.send(Message("orders", b"%d" % number)) for number in range(20)]
        consumer = PushConsumer(store, app.handlers, client_id="me")
        with closing(consumer), Glance(str(tmp_path)) as seen:
            consumer.start()
            eventually(lambda: not any(each.lag for each in seen.group_queues()), "all handled")
            queues = {(each.topic, each.queue_id): each for each in seen.queues()}
            for each in sent:
                queue = queues[each.queue.topic, each.queue.queue_id]
                message = store.message_at(each.queue, each.queue_offset)
                assert seen.stored_ms(queue, each.queue_offset) == message.store_timestamp
            assert seen.stored_ms(queues["orders", 0], 1_000) is None
            assert {(each.group, each.client_id) for each in seen.members()} == {("billing", "me")}
            assert all(each.has_owner for each in seen.group_queues())
            assert (seen.is_open, seen.has_housekeeper) == (True, True)
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


@pytest.mark.parametrize(
    ("worker", "running", "state"),
    [
        (40.0, [Running("g", "orders", 2, 7731, 9, None)], "hung 40 s in orders 2:7731"),
        (40.0, [Running("g", "orders", 2, 7731, 9, 39.6)], "hung 40 s in orders 2:7731"),
        (40.0, [Running("g", "orders", 2, 7731, 9, 3.0), Running("g", "a", 0, 1, 9, 40.0)], "hung 40 s in a 0:1"),
        (40.0, [], "hung 40 s"),
        (3.0, [Running("g", "orders", 2, 7731, 9, 3.0)], None),
    ],
)
def test_a_handler_that_runs_too_long_is_named_by_its_message(
    worker: float, running: list[Running], state: str | None
) -> None:
    rows = [Worker(0, 9, 8, "ready", 0.1, worker, 1)]
    assert findings.hung(rows, running, 30.0) == ([] if state is None else [state])


def test_the_worst_state_of_its_queues_is_that_of_a_group() -> None:
    queues = [
        words.queue_state(lag=3, has_owner=True),
        words.queue_state(lag=3, has_owner=True, flow_control=FlowControl.SPAN.code),
        words.queue_state(lag=0, has_owner=True),
    ]
    assert queues == ["running", "flow control: span", "idle"]
    assert words.group_state(queues, members=1, lag=6) == "flow control: span"
    assert words.group_state(queues, members=0, lag=6) == "no members"
    assert words.group_state(["paused"], members=0, lag=6) == "paused, no members"
    assert words.group_state([], members=1, lag=0) == "idle"


@pytest.mark.guarantee("G93")
@pytest.mark.parametrize("name", ["shared", "lock", "config/deadLetters.jsonl", "commitlog/00000000000000000000"])
def test_a_pipe_or_an_endless_file_where_a_file_should_be_does_not_hold_up_a_check(tmp_path: Path, name: str) -> None:
    # Given a store that was closed, in which a file was replaced by a pipe that nobody writes to
    with open_store(tmp_path) as store:
        appender = store.appender(lambda topic: store.topics.create(topic, 1), lambda body: bytes(str(body), "utf-8"))
        appender.append(Message("%DLQ%billing", b"1"))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)

    # Then a check ends, and says so if it needs the file
    if name in ("shared", "lock"):
        with pytest.raises(Unreadable):
            Glance(str(tmp_path))
        return
    assert found(tmp_path, "dlq").values[0].value == 1

    # And the same for a file of a terabyte of holes
    path.unlink()
    path.touch()
    os.truncate(path, 1 << 40)
    assert found(tmp_path, "dlq").values[0].value == 1
