"""Who does the housekeeping, and that it is done."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient import App, Message, MessageQueue, Producer, ReceivedMessage, StoreConfig
from rmqclient.admin import Admin
from rmqclient.store import MessageStore, open_store
from rmqclient.store.config import FlushConfig, RetentionConfig
from rmqclient.store.settings import checkpoint, config_file
from rmqclient.store.settings.disk import Disk, Usage
from rmqclient.store.upkeep import housekeeper, tasks
from tests.client.conftest import QUICK as QUICK_CONSUMER
from tests.client.conftest import consuming, wait_for
from tests.support.host.wall_clock import WallClock
from tests.support.written import TOP

QUICK = StoreConfig(
    commit_log_file_bytes=1 << 20,
    max_body_bytes=100_000,
    flush=FlushConfig(interval_ms=20, thorough_interval_ms=40, queues_interval_ms=40),
    offset_persist_interval_ms=20,
)


def has_role(store: MessageStore) -> bool:
    return store.housekeeper is not None and store.housekeeper.has_role


def test_one_of_several_openers_is_the_housekeeper_and_another_takes_over(tmp_path: Path) -> None:
    first, second = open_store(tmp_path, QUICK), open_store(tmp_path, QUICK)
    wait_for(lambda: has_role(first) or has_role(second), "one has the role")
    holder, other = (first, second) if has_role(first) else (second, first)
    assert not has_role(other)
    holder.close()
    wait_for(lambda: has_role(other), "the other one takes the role over")
    other.close()


def test_the_role_that_is_given_back_is_taken_over_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given processes that try for the role once a minute
    monkeypatch.setattr(housekeeper, "_ATTEMPT_MS", 60_000)
    stores = [open_store(tmp_path, QUICK) for _ in range(3)]
    while stores:
        wait_for(lambda: any(map(has_role, stores)), "one has the role")
        # When that one closes, then another has it before the minute is over
        holder = next(filter(has_role, stores))
        stores.remove(holder)
        holder.close()


def test_a_process_without_the_role_closes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeper, "_ATTEMPT_MS", 60_000)
    with open_store(tmp_path, QUICK) as holder:
        wait_for(lambda: has_role(holder), "it has the role")
        closing = [threading.Thread(target=open_store(tmp_path, QUICK).close) for _ in range(20)]
        for each in closing:
            each.start()
        for each in closing:
            each.join(30.0)
            assert not each.is_alive()


def test_the_role_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import sys, signal, time; from rmqclient.store import open_store; s = open_store(sys.argv[1])\n"
        "while not s.housekeeper.has_role: time.sleep(0.01)\n"
        "print('has it', flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "has it\n"
        with open_store(tmp_path) as store:
            assert not has_role(store)
            child.send_signal(signal.SIGKILL)
            wait_for(lambda: has_role(store), "the role is taken over")


@pytest.mark.guarantee("G2")
@pytest.mark.parametrize("hours", [-1, 1, 87_600])
def test_a_wall_clock_that_is_set_does_not_stop_the_flushes(tmp_path: Path, hours: int) -> None:
    # Given a sender that is the housekeeper, and has flushed what it sent
    clock = WallClock(tmp_path)
    code = (
        "import sys, time; from rmqclient import Message, Producer; from tests.client.test_housekeeping import QUICK\n"
        "from rmqclient.store import open_store\n"
        "with open_store(sys.argv[1], QUICK) as store, Producer(store) as producer:\n"
        "    for _ in sys.stdin:\n"
        "        end = producer.send(Message('orders', b'')).commit_log_end\n"
        "        while store.state.flushed_to < end: time.sleep(0.01)\n"
        "        print('flushed', flush=True)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "store")]
    with subprocess.Popen(
        command, cwd=TOP, env=clock.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as sender:
        try:
            send_and_wait(sender)
            # When somebody sets the clock, then it flushes what it sends next, too
            clock.set(hours * 3_600_000)
            send_and_wait(sender)
        finally:
            sender.kill()


def send_and_wait(sender: subprocess.Popen[str], timeout_s: float = 10.0) -> None:
    assert sender.stdin is not None
    assert sender.stdout is not None
    print("send", file=sender.stdin, flush=True)
    assert select.select([sender.stdout], [], [], timeout_s)[0], "it was never flushed"
    assert sender.stdout.readline() == "flushed\n"


def test_a_supervisor_is_preferred(tmp_path: Path) -> None:
    with open_store(tmp_path, QUICK) as producer:
        wait_for(lambda: has_role(producer), "a producer alone has the role")
        with open_store(tmp_path, QUICK) as supervisor:
            Admin(supervisor).prefer_as_housekeeper()
            wait_for(lambda: has_role(supervisor), "the supervisor takes it")
            assert not has_role(producer)
        wait_for(lambda: has_role(producer), "the producer has it back")


def test_what_is_sent_becomes_durable_by_itself_and_the_checkpoint_says_so(tmp_path: Path) -> None:
    with open_store(tmp_path, QUICK) as store, Producer(store) as producer:
        end = producer.send(Message("t", b"x")).commit_log_end

        def recorded() -> bool:
            found, low_water = checkpoint.read(tmp_path)
            return found.flushed_to == end and low_water is not None and low_water.dispatched_to == end

        wait_for(recorded, "the checkpoint has the end of the message")
        assert store.state.flushed_to == end


def test_the_next_commit_log_file_is_made_ahead_of_the_writer(tmp_path: Path) -> None:
    with open_store(tmp_path, QUICK) as store, Producer(store) as producer:
        producer.send(Message("t", bytes(1_000)))
        wait_for(lambda: len(store.log_files.bases()) == 2, "the second file is there")
        while store.state.published_to < 1 << 20:
            producer.send(Message("t", bytes(50_000)))
        wait_for(lambda: len(store.log_files.bases()) == 3, "the third file follows the roll")
    assert store.log_files.bases() == [0, 1 << 20], "a clean close leaves no empty file behind"


def test_old_files_are_removed_by_themselves_and_the_last_consumer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a store whose disk is nearly full
    monkeypatch.setattr(Disk, "usage", lambda _: Usage(86.0, 1 << 40))
    monkeypatch.setattr(tasks, "FIRST_RUN_AFTER_MS", 50)
    config = replace(QUICK, retention=RetentionConfig(interval_ms=20))
    with open_store(tmp_path, config) as store, Producer(store) as producer:
        producer.create_topic("t", 1)
        while store.state.published_to < 3 << 20:
            producer.send(Message("t", bytes(50_000)))

        # Then all but what is being written goes, and a handler gets what is left
        wait_for(lambda: store.state.min_offset >= 2 << 20, "the first two files are removed")
        wait_for(lambda: store.topics.min_offset(MessageQueue("t", 0)) > 0, "the queue begins later")
        app = App(tmp_path)
        received: list[int] = []

        @app.handler("t", group="g")
        def take(message: ReceivedMessage) -> None:
            received.append(message.queue_offset)

        low, high = store.topics.min_offset(MessageQueue("t", 0)), store.topics.max_offset(MessageQueue("t", 0))
        with consuming(store, app):
            wait_for(lambda: received and max(received) == high - 1, "the newest message")
        assert min(received) >= low > 0


def test_a_handler_that_fell_behind_goes_on_and_says_how_many_messages_it_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a handler that sleeps over its first message while files are removed
    monkeypatch.setattr(Disk, "usage", lambda _: Usage(86.0, 1 << 40))
    app = App(tmp_path)
    received: list[int] = []
    may_go_on = threading.Event()

    @app.handler("t", group="g")
    def take(message: ReceivedMessage) -> None:
        received.append(message.queue_offset)
        assert may_go_on.wait(60)

    with open_store(tmp_path, QUICK, housekeeping=False) as store, Producer(store) as producer:
        queue = producer.create_topic("t", 1)[0]
        limits = replace(QUICK_CONSUMER, max_messages=2, batch_messages=1)
        with consuming(store, app, limits):
            while store.state.published_to < 3 << 20:
                producer.send(Message("t", bytes(50_000)))
            wait_for(lambda: received, "the first message")
            store.flusher.flush_thorough()
            store.retention.clean()
            assert store.state.min_offset > 0
            low, high = store.topics.min_offset(queue), store.topics.max_offset(queue)
            may_go_on.set()
            wait_for(lambda: received[-1] == high - 1, "the newest message")
    assert [offset for offset in received if offset >= low] == list(range(low, high))
    missed = low - len([offset for offset in received if offset < low])
    assert (
        f"{missed} messages were removed by retention before they were taken; going on at offset {low}" in caplog.text
    )


def test_committed_offsets_are_written_while_consumers_run(tmp_path: Path) -> None:
    with open_store(tmp_path, QUICK) as store, Producer(store) as producer:
        queue = producer.create_topic("t", 1)[0]
        slot = store.groups.find_or_add("g", store.topics.slot(queue), 0)
        with slot.locked(1_000):
            slot.restore(5, 0, 1)
        wait_for(
            lambda: config_file.read_consumer_offsets(tmp_path) == {("t", "g"): {0: 5}}, "consumerOffset.json has it"
        )
