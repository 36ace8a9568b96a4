"""A host that refuses to start a thread, for a moment: what runs in threads goes on when it allows them again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.store import Durability, FlushConfig, MessageStore, StoreConfig, open_store
from rmqclient.store.errors import NotFlushed
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
