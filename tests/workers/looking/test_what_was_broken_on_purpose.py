"""A person who runs only ``rmq check``: the first line names what was broken on purpose, and what to do about it.

Each store has one trouble; everything else about it is well. So the first finding is the trouble.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.admin import Admin
from rmqclient.codecs import encode_body
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import MessageStore, WorkerState, boottime, open_store
from rmqclient.store.errors import StoreFull
from rmqclient.store.observe.reading import Reading
from rmqclient.store.runtime.worker_table import WorkerSlot
from tests.workers.commands.test_cli import run
from tests.workers.supervised import eventually


class Store(NamedTuple):
    """An open store with a housekeeper, a ready worker, and a topic whose group has handled everything."""

    store: MessageStore
    producer: Producer
    admin: Admin
    worker: WorkerSlot
    opened: ExitStack

    def consume(self, app: App) -> None:
        """Run the handlers of an application until the end of the test."""
        consumer = self.opened.enter_context(closing(PushConsumer(self.store, app.handlers, client_id="me")))
        consumer.start()


@pytest.fixture
def healthy(tmp_path: Path) -> Iterator[Store]:
    with ExitStack() as opened:
        store = opened.enter_context(open_store(tmp_path / "store"))
        producer, admin = opened.enter_context(Producer(store)), opened.enter_context(Admin(store))
        producer.create_topic("orders", 1)
        producer.send(Message("orders", b"handled"))
        admin.seek("billing", "orders", "latest")
        slot = store.workers().claim()
        store.workers().assign(slot, os.getpid())
        worker = store.workers().attach(slot)
        worker.set_state(WorkerState.READY)
        worker.beat()
        eventually(lambda: has_housekeeper(store.root), "a housekeeper")
        yield Store(store, producer, admin, worker, opened)


def has_housekeeper(root: Path) -> bool:
    with Reading(str(root)) as reading:
        return reading.processes.has_housekeeper


Options = tuple[str, ...]


def a_silent_worker(_: Store) -> Options:
    threading.Event().wait(0.01)
    return ("--beat-age", "1ms")


def a_dead_worker(_: Store) -> Options:
    return ("--min-ready", "2")


def a_worker_that_lost_a_thread(broken: Store) -> Options:
    broken.worker.set_state(WorkerState.LOSING)
    return ()


def a_hung_handler(broken: Store) -> Options:
    broken.worker.report(1, 0, 0, boottime() - 20 * 10**9)
    return ("--message-age", "10s")


def a_paused_group(broken: Store) -> Options:
    broken.admin.seek("billing", "orders", "earliest")
    broken.admin.pause("billing")
    return ()


def a_group_without_workers(broken: Store) -> Options:
    broken.admin.seek("billing", "orders", "earliest")
    return ()


def messages_that_were_removed_unread(broken: Store) -> Options:
    broken.admin.seek("billing", "orders", "earliest")
    (queue,) = broken.store.topics.queues("orders")
    broken.store.topics.raise_min_offset(queue, 1)
    return ()


def a_full_disk(broken: Store) -> Options:
    broken.store.disk._unshare = no_room  # the housekeeper looks again each second
    broken.store.disk.look()
    return ()


def no_room() -> None:
    raise StoreFull("there is no room")


def a_disk_that_fills(_: Store) -> Options:
    return ("--disk-warn", "0", "--disk-crit", "1")


def a_failed_flush(broken: Store) -> Options:
    broken.store.state.poisoned = 5
    broken.opened.callback(lambda: setattr(broken.store.state, "poisoned", 0))
    return ()


def dead_letters(broken: Store) -> Options:
    letters = broken.store.appenders.make(lambda topic: broken.store.topics.create(topic, 1), encode_body)
    letters.append(Message("%DLQ%billing", b"dead"))
    return ()


def retries_that_wait(broken: Store) -> Options:
    every_message_fails(broken, 1)
    return ("--warn", "1")


def waiting_in(broken: Store) -> list[int | None]:
    return [each.waiting for each in broken.admin.groups() if each.group == "billing"]


def every_message_fails(broken: Store, count: int) -> None:
    """Send so many messages to a handler that fails, and wait until all of them wait for a retry in an hour."""
    app = App(broken.store.root)

    @app.handler("orders", group="billing", retry=RetryPolicy(delays=(3_600,)))
    def bill(_: ReceivedMessage) -> None:
        raise ValueError

    broken.consume(app)
    broken.producer.send_batch([Message("orders", b"fails")] * count)
    eventually(lambda: waiting_in(broken) == [count], f"{count} that wait")


def an_overdue_schedule(broken: Store) -> Options:
    broken.worker.set_state(WorkerState.OVERDUE)
    return ()


def a_missing_topic(broken: Store) -> Options:
    app = App(broken.store.root)
    app.handler("ordres", group="mailing")(lambda _message: None)
    broken.consume(app)
    return ()


@pytest.mark.guarantee("G55")
@pytest.mark.parametrize(
    ("break_it", "check", "subject", "remedy"),
    [
        (a_silent_worker, "workers", "", "rmq worker ls"),
        (a_dead_worker, "workers", "", "start `rmq run`"),
        (a_worker_that_lost_a_thread, "workers", "", "its log has the traceback"),
        (a_hung_handler, "hung", "", "rmq worker stack {pid}"),
        (a_paused_group, "lag", "billing", "rmq group resume billing"),
        (a_group_without_workers, "lag", "billing", "start its workers"),
        (messages_that_were_removed_unread, "lag", "billing", "rmq group seek billing"),
        (a_full_disk, "store", "", "make room"),
        (a_disk_that_fills, "store", "", "make room"),
        (a_failed_flush, "store", "", "rmq store repair"),
        (dead_letters, "dlq", "billing", "rmq dlq ls billing"),
        (retries_that_wait, "lag", "billing", "rmq group lag billing"),
        (an_overdue_schedule, "schedules", "", "rmq worker stack"),
        (a_missing_topic, "topic", "mailing", "rmq topic create ordres"),
    ],
)
def test_the_first_finding_names_the_trouble_its_subject_and_what_to_do(
    healthy: Store, break_it: Callable[[Store], Options], check: str, subject: str, remedy: str
) -> None:
    options = break_it(healthy)
    disk = () if "--disk-warn" in options else ("--disk-warn", "1", "--disk-crit", "1")
    result = run("check", "-o", "json", *disk, *options, "--store", str(healthy.store.root))
    first = json.loads(result.stdout)["findings"][0]
    assert (first["check"], first["subject"]) == (check, subject), first
    assert remedy.format(pid=os.getpid()) in first["remedy"], first
    assert first["level"] in ("warning", "critical")
    shown = run("check", *disk, *options, "--store", str(healthy.store.root)).stdout.splitlines()
    assert shown[0].startswith(first["level"])


@pytest.mark.guarantee("G55")
def test_a_group_whose_every_message_failed_is_told_with_their_number(healthy: Store) -> None:
    every_message_fails(healthy, 20)
    (line,) = run(
        "check", "--disk-warn", "1", "--disk-crit", "1", "--store", str(healthy.store.root)
    ).stdout.splitlines()
    assert "1 group (20 wait for a retry, all in billing)" in line


def test_a_store_whose_processes_are_gone_says_that_nothing_is_delivered_later(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", housekeeping=False):
        result = run("check", "-o", "json", "--min-ready", "0", "--store", str(tmp_path / "store"))
        first = json.loads(result.stdout)["findings"][0]
    assert (first["check"], first["level"]) == ("housekeeper", "warning")
    assert "rmq run" in first["remedy"]


def test_a_store_that_is_well_is_one_line(healthy: Store) -> None:
    limits = ("--disk-warn", "1", "--disk-crit", "1")
    (line,) = run("check", *limits, "--store", str(healthy.store.root)).stdout.splitlines()
    assert line.startswith("ok ")
    assert "1 groups" not in line
