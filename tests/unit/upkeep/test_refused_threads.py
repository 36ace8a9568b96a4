"""A host that refuses to start a thread, for a moment: what runs in threads goes on when it allows them again."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.store import Durability, FlushConfig, MessageStore, StoreConfig, open_store
from rmqclient.store.errors import LimitReached, NotFlushed
from rmqclient.store.files.file_lock import BROKER_BYTE, LockFile
from tests.client.conftest import wait_for
from tests.support.stores import TOPIC, appender_of

CONFIG = StoreConfig(commit_log_file_bytes=36_864, max_body_bytes=2_048, durability=Durability.SYNC)


class Refusals:
    """Refuses the next threads of a name, and says how many it has refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left: dict[str, int] = {}
        self.made = 0
        start = threading.Thread.start

        def refusing(thread: threading.Thread) -> None:
            if self._left.get(thread.name, 0):
                self._left[thread.name] -= 1
                self.made += 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refusing)

    def next(self, count: int, name: str) -> None:
        """Refuse the next ``count`` threads of this name."""
        self._left[name] = count


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refusals:
    return Refusals(monkeypatch)


QUICK = StoreConfig(flush=FlushConfig(thorough_interval_ms=50))


def append_and_see_it_flushed(store: MessageStore) -> None:
    appender_of(store).append(Message(TOPIC, b"message"))
    wait_for(lambda: store.state.flushed_to == store.state.published_to, "the housekeeper flushes", timeout_s=30)


@pytest.mark.guarantee("G2")
@pytest.mark.parametrize("name", ["rmq-upkeep", "rmq-schedule", "rmq-timer"])
def test_a_housekeeper_without_one_of_its_threads_tries_again(tmp_path: Path, refuse: Refusals, name: str) -> None:
    refuse.next(1, name)
    with open_store(tmp_path, QUICK) as store:
        append_and_see_it_flushed(store)
    assert refuse.made == 1


@pytest.mark.guarantee("G2")
@pytest.mark.parametrize("count", [1, 5])
def test_tasks_run_in_the_threads_that_there_are_and_in_more_when_they_can_be_started(
    tmp_path: Path, refuse: Refusals, count: int
) -> None:
    refuse.next(count, "rmq-task")
    with open_store(tmp_path, QUICK) as store:
        append_and_see_it_flushed(store)
        wait_for(lambda: sum(thread.name == "rmq-task" for thread in threading.enumerate()) >= 5, "all threads run")
    assert refuse.made == count


@pytest.mark.guarantee("G2")
def test_a_future_that_no_thread_can_wait_for_says_that_its_message_is_stored_and_the_next_one_ends(
    tmp_path: Path, refuse: Refusals
) -> None:
    with Producer(tmp_path, config=CONFIG) as producer:
        refuse.next(1, "rmq-flushes")
        with pytest.raises(NotFlushed, match="is stored"):
            producer.send_async(Message(TOPIC, b"first")).result(10)
        assert producer.send_async(Message(TOPIC, b"second")).result(10).commit_log_offset > 0


@pytest.mark.guarantee("G110")
@pytest.mark.parametrize("name", ["rmq-releaser", "rmq-housekeeper", "rmq-preparer"])
def test_a_producer_without_one_of_its_threads_names_the_limit_and_has_left_the_store(
    tmp_path: Path, refuse: Refusals, name: str
) -> None:
    refuse.next(1, name)
    with pytest.raises(LimitReached, match="RLIMIT_NPROC"):
        Producer(tmp_path, config=QUICK)
    lock = LockFile(tmp_path / "lock")
    assert lock.try_exclusive(BROKER_BYTE)
    lock.close()
    with Producer(tmp_path) as producer:
        producer.send(Message(TOPIC, b"message"))


HANGS = """
import sys, threading
def hang(thread):
    print(thread.name, flush=True)
    sys.stdin.read()
threading.Thread.start = hang
from rmqclient import Producer
Producer(sys.argv[1])
"""


@pytest.mark.guarantee("G110")
def test_a_process_that_hangs_while_it_starts_a_thread_keeps_nobody_out(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HANGS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "rmq-releaser\n"
            with Producer(tmp_path) as producer:
                producer.send(Message(TOPIC, b"message"))
        finally:
            child.kill()


WITHOUT_MEMORY = """
import resource, sys, threading
from pathlib import Path
from rmqclient import Producer
from rmqclient.store.errors import LimitReached
stack = 1 << 30
threading.stack_size(stack)
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + stack, resource.RLIM_INFINITY))
try:
    Producer(sys.argv[1])
except LimitReached as error:
    print(error)
"""


@pytest.mark.guarantee("G110")
def test_a_process_without_room_for_a_stack_is_told_which_limit_it_has_met(tmp_path: Path) -> None:
    with Producer(tmp_path, config=CONFIG):
        command = [sys.executable, "-c", WITHOUT_MEMORY, str(tmp_path)]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "thread rmq-releaser" in told
    assert "RLIMIT_AS" in told
