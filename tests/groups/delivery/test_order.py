"""Order that survives its owners: real processes, real signals, histories checked line by line."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.store import MessageStore, java_hash, open_store
from tests.groups.membership.test_takeover import is_finished, wait_for
from tests.groups.order import ends, violations
from tests.groups.processes.ordered_member import TOPIC

KEYS = [f"key-{number}" for number in range(24)]
QUEUES = 4

FIRST_BY_QUEUE = pytest.mark.parametrize("order", ["queue", pytest.param("key", marks=pytest.mark.sweep)])
FIRST_BY_KEY = pytest.mark.parametrize("order", [pytest.param("queue", marks=pytest.mark.sweep), "key"])
"""The two modes: most of what they do is the same, so they take turns in a quick run."""


class Members:
    """Processes of one group that write into one journal."""

    def __init__(self, root: Path, order: str, *, lease_ms: int = 10_000, pause_ms: float = 0.5) -> None:
        self.journal = root.parent / "journal"
        self.alive: list[subprocess.Popen[bytes]] = []
        self.killed: set[int] = set()
        self.stopped: set[int] = set()
        self._command = [
            sys.executable,
            "-m",
            "tests.groups.processes.ordered_member",
            str(root),
            str(self.journal),
            order,
        ]
        self._command += [str(lease_ms), str(pause_ms)]

    def start(self, count: int = 1) -> None:
        started = [subprocess.Popen(self._command) for _ in range(count)]
        self.alive += started
        for member in started:
            wait_for(partial(self._is_ready, member), "the member is ready, or dead already")

    def _is_ready(self, member: subprocess.Popen[bytes]) -> bool:
        return bool(self.lines(member.pid, "ready")) or member.poll() is not None

    def kill(self, member: subprocess.Popen[bytes]) -> None:
        self.killed.add(member.pid)
        self.alive.remove(member)
        member.kill()
        member.wait(20)

    def leave(self, member: subprocess.Popen[bytes]) -> None:
        self.alive.remove(member)
        member.terminate()
        assert member.wait(20) == 0

    def lines(self, pid: int | None = None, what: str = "") -> list[str]:
        """Lines of the journal; the last one is there in whole or not at all."""
        text = self.journal.read_text() if self.journal.exists() else ""
        lines = [line for line in text.splitlines() if pid is None or line.startswith(f"{pid} ")]
        return [line for line in lines if not what or line.split()[1] == what]

    def history(self) -> list[str]:
        return [line for line in self.lines() if line.split()[1] in {"start", "end", "fail"}]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


@contextmanager
def group_of(store: MessageStore, order: str, *, lease_ms: int = 10_000, pause_ms: float = 0.5) -> Iterator[Members]:
    members = Members(store.root, order, lease_ms=lease_ms, pause_ms=pause_ms)
    try:
        yield members
    finally:
        for member in members.alive:
            member.kill()
            member.wait(20)


def send(
    store: MessageStore,
    order: str,
    count: int,
    chance: random.Random,
    todo: Callable[[str, int], str] = lambda _, __: "",
) -> dict[str, set[int]]:
    """Send to all queues, three times with each key, then with any; return the numbers of each lane.

    ``todo`` gives by lane and place what the handler is to do.
    """
    sent: dict[str, set[int]] = {}
    with Producer(store) as producer:
        producer.create_topic(TOPIC, QUEUES)
        for number in range(count):
            key = KEYS[number % len(KEYS)] if number < 3 * len(KEYS) else chance.choice(KEYS)
            lane = key if order == "key" else str(queue_of(key))
            place = len(sent.setdefault(lane, set()))
            sent[lane].add(place)
            result = producer.send(Message(TOPIC, f"{lane} {place} {todo(lane, place)}".encode()), key)
            assert result.queue.queue_id == queue_of(key)
    return sent


def queue_of(key: str) -> int:
    """Return the queue of a sharding key. [SelectMessageQueueByHash]"""
    return abs(java_hash(key)) % QUEUES


@pytest.mark.guarantee("G23")
@FIRST_BY_KEY
def test_the_order_is_kept_when_owners_are_killed(store: MessageStore, chance: random.Random, order: str) -> None:
    # Given owners that handle three fifths of every lane before the last of them was killed, however slow the killer is
    gate = 1_200 // (QUEUES if order == "queue" else len(KEYS))
    sent = send(store, order, 2_000, chance, lambda _, place: "wait" if place == gate else "")
    with group_of(store, order, pause_ms=8) as members:
        members.start(2)
        for kills in range(1, 4):
            wait_for(partial(has_ended, members, 300 * kills), "they are in the middle of it")
            members.kill(chance.choice(members.alive))
            assert not is_finished(store)
            members.start()
        Path(f"{members.journal}.go").touch()
        wait_for(lambda: is_finished(store), "everything is handled", timeout_s=60)
        assert ends(members.history()) == sent
        assert violations(members.history(), killed=members.killed) == []


@pytest.mark.guarantee("G23")
@FIRST_BY_QUEUE
def test_the_order_is_kept_when_members_join_and_leave(store: MessageStore, chance: random.Random, order: str) -> None:
    sent = send(store, order, 2_000, chance)
    with group_of(store, order) as members:
        members.start(2)
        for _ in range(3):
            if chance.random() < 0.5 and len(members.alive) > 1:
                members.leave(chance.choice(members.alive))
            else:
                members.start()
        wait_for(lambda: is_finished(store), "everything is handled", timeout_s=60)
        assert ends(members.history()) == sent
        assert violations(members.history()) == []
        starts = [line for line in members.history() if line.split()[1] == "start"]
        assert len(starts) == 2_000, "nothing was delivered twice"


@pytest.mark.guarantee("G23")
@FIRST_BY_KEY
def test_an_owner_stopped_past_its_lease_spoils_no_order_but_that_of_what_it_was_running(
    store: MessageStore, chance: random.Random, order: str
) -> None:
    # Given a member that is stopped while each of its four threads is inside of a handler
    sent = send(store, order, 400, chance, lambda _, place: "wait" if place == 3 else "")
    with group_of(store, order, lease_ms=1_000) as members:
        members.start()
        (stopped,) = members.alive
        wait_for(lambda: running(members, stopped.pid) == 4, "every thread is inside of a handler")
        stopped.send_signal(signal.SIGSTOP)
        members.stopped.add(stopped.pid)

        # When another one handles everything, and the first one wakes up
        members.start()
        other = members.alive[-1]
        wait_for(lambda: running(members, other.pid) == 4, "its messages are begun again by the next owner")
        Path(f"{members.journal}.go").touch()
        wait_for(lambda: is_finished(store), "everything is handled", timeout_s=60)
        stopped.send_signal(signal.SIGCONT)
        wait_for(lambda: running(members, stopped.pid) == 0, "the stopped handlers have ended")

        # Then its acknowledgements were refused, and there was no disorder but its own late endings
        assert ends(members.history()) == sent
        assert violations(members.history(), stopped=members.stopped) == []
        members.leave(stopped)
        assert members.lines(stopped.pid, "refused") == [f"{stopped.pid} refused 4"]


@pytest.mark.guarantee("G24")
@FIRST_BY_QUEUE
def test_a_failing_message_holds_its_lane_and_no_other(store: MessageStore, chance: random.Random, order: str) -> None:
    first = KEYS[0] if order == "key" else str(queue_of(KEYS[0]))
    sent = send(store, order, 400, chance)
    late = len(sent[first])
    with Producer(store) as producer:
        for place, what in ((late, "fail"), (late + 1, "")):
            producer.send(Message(TOPIC, f"{first} {place} {what}".encode()), KEYS[0])
            sent[first].add(place)
    with group_of(store, order) as members:
        members.start()
        wait_for(lambda: is_finished(store), "everything is handled", timeout_s=60)
        history = members.history()
        assert ends(history) == sent
        assert violations(history) == []
        failures = [line.split()[2:] for line in history if line.split()[1] == "fail"]
        assert failures == [[first, str(late), str(attempt)] for attempt in (1, 2, 3, 4)]
        begin, end = (
            next(at for at, line in enumerate(history) if line.split()[1:4] == [what, first, str(late)])
            for what in ("fail", "end")
        )
        others = [line for line in history[begin:end] if line.split()[2] != first]
        assert len(others) > 0 or begin > len(history) - 12, "the others went on meanwhile"


@pytest.mark.guarantee("G24")
@FIRST_BY_KEY
def test_attempts_are_counted_on_when_a_message_kills_its_owners(
    store: MessageStore, chance: random.Random, order: str
) -> None:
    first = KEYS[0] if order == "key" else str(queue_of(KEYS[0]))
    sent = send(store, order, 200, chance, lambda lane, place: "die" if (lane, place) == (first, 2) else "")
    assert 2 in sent[first]
    with group_of(store, order, pause_ms=0) as members:
        while True:
            members.start()
            (member,) = members.alive
            wait_for(partial(has_died_or_finished, store, member), "it has died, or is done")
            if member.poll() is None:
                break
            members.kill(member)
            assert len(members.killed) <= 3
        wait_for(lambda: is_finished(store), "everything is handled", timeout_s=60)
        history = members.history()
        assert ends(history) == sent
        assert violations(history, killed=members.killed) == []
        starts = [line.split()[4] for line in history if line.split()[1:4] == ["start", first, "2"]]
        assert starts == ["1", "2", "3", "4"]


def has_ended(members: Members, count: int) -> bool:
    return len(members.lines(what="end")) >= count


def has_died_or_finished(store: MessageStore, member: subprocess.Popen[bytes]) -> bool:
    return member.poll() is not None or is_finished(store)


def running(members: Members, pid: int) -> int:
    """Return how many handlers of a process are under way."""
    lines = [line.split()[1] for line in members.history() if line.startswith(f"{pid} ")]
    return 2 * lines.count("start") - len(lines)


def test_the_check_sees_what_would_break_an_order() -> None:
    good = ["1 start a 0 1", "1 end a 0", "2 start a 1 1", "2 fail a 1 1", "2 start a 1 2", "2 end a 1"]
    assert violations(good) == []
    assert violations(["1 start a 0 1", "1 end a 0", "2 start a 2 1"])  # one is left out
    assert violations([*good, "2 start a 1 3"])  # one comes again
    assert violations([*good, "2 start a 1 3"], killed=[2]) == []
    assert violations(["1 start a 0 1", "2 start a 0 1"])  # two owners
    assert violations(["1 start a 0 1", "2 start a 0 1"], killed=[1]) == []
    assert violations([*good, "3 start a 1 3", "3 end a 1", "3 start a 2 1"], killed=[2]) == []
    assert violations([*good, "2 start a 0 2"], killed=[2])  # further back than what was running
    late = ["1 start a 0 1", "2 start a 0 1", "2 end a 0", "2 start a 1 1", "1 end a 0"]
    assert violations(late, stopped=[1]) == []
    assert violations(late, killed=[1]) == ["1 end a 0: ended out of order, 1 was next"]
