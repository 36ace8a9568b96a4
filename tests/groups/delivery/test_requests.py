"""Requests between processes, while those that answer and those that ask are killed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rmqclient import Message, Producer, RequestFuture, StoreConfig
from rmqclient.store import MessageStore, open_store
from tests.client.conftest import wait_for
from tests.groups.processes.request_child import TOPIC, WORK_S, answer_to
from tests.support.oracle import reference

REPLIES = "DefaultCluster_REPLY_TOPIC"
LIVES = 5
LONG_S = 60.0
AT_ONCE = 20


class Children:
    """Processes that ask or answer."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self._root = root
        self._stack = stack

    def started(self, role: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.groups.processes.request_child", role, str(self._root)]
        child = self._stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        self._stack.callback(child.kill)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return child


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "store"
    assert reference.check_store(tmp_path / "store") == []


def replies(store: MessageStore) -> Counter[str]:
    """Return how many replies each request has, by its correlation id."""
    return Counter(
        store.messages.at(queue, number).properties["CORRELATION_ID"]
        for queue in store.topics.queues(REPLIES)
        for number in range(store.topics.max_offset(queue))
    )


@pytest.mark.crash
@pytest.mark.guarantee("G45")
def test_every_request_is_answered_though_those_that_answer_are_killed(root: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    waiting: deque[tuple[bytes, RequestFuture]] = deque()
    who: Counter[bytes] = Counter()

    def receive() -> None:
        question, future = waiting.popleft()
        pid, _, answer = future.result().body.partition(b" ")
        assert answer == answer_to(question)
        who[pid] += 1

    with (
        open_store(root, StoreConfig(default_queue_count=2)) as store,
        ExitStack() as stack,
        Producer(store) as producer,
    ):
        children, alive, asked = Children(root, stack), list[subprocess.Popen[str]](), 0
        for life in range(LIVES):
            # Given two that answer, one of which is killed at some moment; the first three have answered before
            alive.append(children.started("replier"))
            ends = time.monotonic() + chosen.uniform(0.05, 0.3)
            while time.monotonic() < ends or len(who) < min(life + 1, 3):
                assert time.monotonic() < ends + LONG_S
                question = b"%d in life %d" % (asked, life)
                waiting.append((question, producer.request_async(Message(TOPIC, question), LONG_S)))
                asked += 1
                if len(waiting) > AT_ONCE:
                    receive()
            if len(alive) == 2:
                alive.pop(chosen.randrange(2)).kill()
        # Then all are answered, each with its own answer, some of them twice and none more often than there were kills
        while waiting:
            receive()
        given = replies(store)
        print(f"{asked} asked, answered by {dict(who)}, {given.total() - len(given)} replies more than requests")
        assert who.total() == asked == len(given)
        assert len(who) > 2
        assert given.total() - len(given) <= LIVES - 1


@pytest.mark.crash
@pytest.mark.guarantee("G45")
def test_those_that_ask_can_be_killed(root: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    with open_store(root) as store, ExitStack() as stack:
        children = Children(root, stack)
        children.started("replier")
        with Producer(store) as producer:
            for life in range(3):
                # Given one that asks on and on, killed at some moment
                requester = children.started("requester")
                time.sleep(chosen.uniform(0.01, 0.1))  # how long it lives is what the test varies
                requester.kill()
                # Then its requests are answered, for nobody, and others get theirs
                question = b"life %d" % life
                assert producer.request(Message(TOPIC, question), LONG_S).body.endswith(b" " + answer_to(question))
        assert replies(store).total() > 3


@pytest.mark.crash
@pytest.mark.guarantee("G45")
def test_the_second_answer_to_a_request_goes_to_nobody(root: Path) -> None:
    with open_store(root) as store, ExitStack() as stack, Producer(store) as producer:
        # Given one that dies between its answer and the acknowledgement
        children = Children(root, stack)
        dying = children.started("dying")
        first = producer.request(Message(TOPIC, b"first"), LONG_S).body
        assert first == b"%d tsrif" % dying.pid
        dying.wait()
        # When another one answers that again
        other = children.started("replier")
        assert producer.request(Message(TOPIC, b"next"), LONG_S).body == b"%d txen" % other.pid
        # Then who asks goes on getting what belongs to it
        wait_for(lambda: replies(store).total() == 3, "the first request is answered again")
        assert producer.request(Message(TOPIC, b"last"), LONG_S).body == b"%d tsal" % other.pid
        assert sorted(replies(store).values()) == [1, 1, 2]


def test_a_reply_wakes_the_one_who_asked(root: Path) -> None:
    with open_store(root) as store, ExitStack() as stack, Producer(store) as producer:
        Children(root, stack).started("replier")
        took = []
        for _ in range(50):
            began = time.perf_counter()
            producer.request(Message(TOPIC, b"?"), LONG_S)
            took.append(time.perf_counter() - began)
        # Whom nobody wakes looks again after half a second.
        assert min(took) < 10 * WORK_S, f"the fastest of {len(took)} took {min(took) * 1e3:.1f} ms"
