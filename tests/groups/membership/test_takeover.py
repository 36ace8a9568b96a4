"""Who has a queue when members come, leave, die and stop: real processes, real signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.admin import Admin, QueueLag
from rmqclient.store import MessageStore, open_store
from tests.groups.processes.member import GROUP, HELD, PAUSING, TOPIC
from tests.support.host.load import slowdown


class Member:
    """A consumer process and its journal."""

    def __init__(
        self, root: Path, number: int, lease_ms: int, pause_s: float, threads: int = 1, mode: str = "plain"
    ) -> None:
        self.journal = root.parent / f"journal-{number}"
        arguments = [str(root), str(self.journal), str(lease_ms), str(pause_s), str(threads), mode]
        self.process = subprocess.Popen([sys.executable, "-m", "tests.groups.processes.member", *arguments])
        wait_for(lambda: self.lines("ready") or self.process.poll() is not None, "the member is ready")
        assert self.process.poll() is None

    def lines(self, kind: str) -> list[str]:
        if not self.journal.exists():
            return []
        return [line for line in self.journal.read_text().splitlines() if line.startswith(kind)]

    def names(self, kind: str) -> list[str]:
        return [line.split()[1] for line in self.lines(kind)]

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stand_still(self) -> None:
        """Stop all threads. One has to run to take the signal, and the others go on until then."""
        self.send_signal(signal.SIGSTOP)
        wait_for(lambda: set(self._states()) == {"T"}, "every thread stands still")

    def _states(self) -> Iterator[str]:
        for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
                yield (thread / "stat").read_text().rpartition(")")[2].split()[0]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait(20)


def wait_for(condition: Callable[[], object], what: str, *, timeout_s: float = 20.0) -> float:
    """Return how many seconds it took until ``condition`` was true; on an idle machine it would have taken so many."""
    begin, busy = time.monotonic(), slowdown()
    while not condition():
        waited = time.monotonic() - begin
        assert waited < timeout_s or waited < timeout_s * slowdown(), f"never came: {what}"
        time.sleep(0.005)
    return (time.monotonic() - begin) / max(busy, slowdown())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store") as opened:
        yield opened


@contextmanager
def members(
    store: MessageStore,
    count: int,
    *,
    lease_ms: int = 10_000,
    pause_s: float = 0.0,
    threads: int = 1,
    mode: str = "plain",
) -> Iterator[list[Member]]:
    with ExitStack() as stack:
        found = []
        for number in range(count):
            member = Member(store.root, number, lease_ms, pause_s, threads, mode)
            stack.callback(member.process.wait, 20)
            stack.callback(member.process.kill)
            found.append(member)
        yield found
        for member in found:
            if member.process.poll() is None:
                member.stop()


def queues(store: MessageStore) -> list[QueueLag]:
    return Admin(store).lag(GROUP)


def owners(store: MessageStore) -> Counter[str | None]:
    return Counter(queue.owner for queue in queues(store))


def is_finished(store: MessageStore) -> bool:
    return bool(queues(store)) and all(queue.lag == 0 for queue in queues(store))


def send(store: MessageStore, count: int, prefix: str = "m") -> list[str]:
    names = [f"{prefix}{number}" for number in range(count)]
    with Producer(store) as producer:
        producer.create_topic(TOPIC, 4)
        for name in names:
            producer.send(Message(TOPIC, name.encode()))
    return names


@pytest.mark.guarantee("G7")
def test_two_members_share_the_queues_and_every_message_is_handled_once(store: MessageStore) -> None:
    send(store, 0)
    with members(store, 2) as (first, second):
        wait_for(lambda: sorted(owners(store).values()) == [2, 2] and None not in owners(store), "two queues each")
        names = send(store, 400)
        wait_for(lambda: is_finished(store), "everything is handled")
    assert sorted(first.names("end") + second.names("end")) == sorted(names)
    assert first.names("end")
    assert second.names("end")


@pytest.mark.guarantee("G14")
def test_the_queues_of_a_killed_member_have_a_new_owner_within_a_second(store: MessageStore) -> None:
    send(store, 0)
    with members(store, 2) as (first, second):
        wait_for(lambda: sorted(owners(store).values()) == [2, 2] and None not in owners(store), "two queues each")
        epochs = sum(queue.epoch for queue in queues(store))
        first.send_signal(signal.SIGKILL)
        took = wait_for(lambda: sum(queue.epoch for queue in queues(store)) == epochs + 2, "two new grants")
        assert took < 1.0
        assert len(owners(store)) == 1
        names = send(store, 40)
        wait_for(lambda: is_finished(store), "everything is handled")
        assert set(names) <= set(second.names("end"))


@pytest.mark.guarantee("G14")
def test_a_member_that_leaves_hands_its_queues_over_at_once(store: MessageStore) -> None:
    send(store, 0)
    with members(store, 2) as (first, second):
        wait_for(lambda: sorted(owners(store).values()) == [2, 2] and None not in owners(store), "two queues each")
        first.stop()
        took = wait_for(lambda: len(owners(store)) == 1 and None not in owners(store), "one owner for all")
        assert took < 1.0
        assert second.process.poll() is None


@pytest.mark.guarantee("G8")
def test_a_member_stopped_past_its_lease_loses_its_queues_and_its_late_acknowledgement_is_refused(
    store: MessageStore,
) -> None:
    # Given a member that is stopped while it handles a message
    send(store, 1, PAUSING)
    with members(store, 1, lease_ms=1_000) as (stopped,):
        wait_for(lambda: stopped.names("start"), "the message is being handled")
        stopped.send_signal(signal.SIGSTOP)
        assert not stopped.names("end")

        # When another one takes over after the lease, handles the message and acknowledges it
        other = Member(store.root, 9, 1_000, 0.0)
        wait_for(lambda: other.names("end") == ["pausing0"], "the message is handled again")
        wait_for(lambda: is_finished(store), "it is acknowledged")
        before = [(queue.queue_id, queue.committed_offset) for queue in queues(store)]

        # Then the late acknowledgement changes nothing, and the member knows
        stopped.send_signal(signal.SIGCONT)
        wait_for(lambda: stopped.names("end") == ["pausing0"], "the stopped handler has ended")
        names = send(store, 40, prefix="later")
        wait_for(lambda: is_finished(store), "both work on")
        other.stop()
        stopped.stop()
        assert stopped.lines("refused") == ["refused 1"]
        assert other.lines("refused") == ["refused 0"]
        assert sorted(stopped.names("end")[1:] + other.names("end")[1:]) == sorted(names)
        assert sum(offset for _, offset in before) == 1


@pytest.mark.guarantee("G91")
@pytest.mark.parametrize("mode", ["plain", "queue"])
@pytest.mark.parametrize("first", ["the owner", "the other"])
def test_when_all_processes_stand_still_whoever_goes_on_first_takes_nothing_from_the_others(
    store: MessageStore, mode: str, first: str
) -> None:
    # Given two members, and a message that one of them handles
    lease_ms = 3_000
    send(store, 0)
    with members(store, 2, lease_ms=lease_ms, mode=mode) as both:
        wait_for(lambda: sorted(owners(store).values()) == [2, 2] and None not in owners(store), "two queues each")
        send(store, 1, HELD)
        wait_for(lambda: any(each.names("start") for each in both), "the message is being handled")
        owner, other = both if both[0].names("start") else both[::-1]
        before = {queue.queue_id: queue.epoch for queue in queues(store)}

        # When all of them stand still past their leases, and one goes on before the others
        for each in both:
            each.send_signal(signal.SIGSTOP)
        wait_for(lambda: min(heartbeat_ages_s(store).values()) > 2 * lease_ms / 1000, "every lease is over")
        early, late = (owner, other) if first == "the owner" else (other, owner)
        early.send_signal(signal.SIGCONT)
        wait_for(lambda: heartbeat_ages_s(store)[early.process.pid] < 0.2, "it is awake")
        late.send_signal(signal.SIGCONT)
        wait_for(lambda: heartbeat_ages_s(store)[late.process.pid] < 0.2, "the other one is awake, too")

        # Then each has its queues, and the message goes on where it was
        (store.root.parent / "go").touch()
        wait_for(lambda: is_finished(store), "it is handled")
        assert {queue.queue_id: queue.epoch for queue in queues(store)} == before
        assert owner.names("start") == owner.names("end") == ["held0"]
        assert other.names("start") == []
        for each in both:
            each.stop()
            assert each.lines("refused") == ["refused 0"]


def heartbeat_ages_s(store: MessageStore) -> dict[int, float]:
    seats = store.members().roll.all()
    return {each.pid: (each.heartbeat_age_ms or 0) / 1000 for each in seats if each.topic == TOPIC}


@pytest.mark.guarantee("G6")
def test_only_the_message_in_flight_is_delivered_again_after_a_kill(store: MessageStore) -> None:
    names = send(store, 60)
    with members(store, 1, pause_s=0.01) as (first,):
        wait_for(lambda: len(first.names("end")) >= 20, "some are handled")
        first.send_signal(signal.SIGKILL)
        first.process.wait(20)
        second = Member(store.root, 9, 10_000, 0.0)
        wait_for(lambda: is_finished(store), "the rest is handled")
        second.stop()
    handled = Counter(first.names("end") + second.names("end"))
    again = set(first.names("start")) & set(second.names("start"))
    assert set(handled) == set(names)
    assert len(again) <= 1, "one thread has one message in flight"
