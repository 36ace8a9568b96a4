"""A long call beside idle processes: its queue goes to another one, and its message stays with it. Real processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.admin import Admin, QueueLag
from rmqclient.health import findings
from rmqclient.store import MessageStore, open_store
from rmqclient.store.observe.reading import Reading
from tests.groups.membership.test_takeover import Member, is_finished, owners, queues, send, wait_for
from tests.groups.processes.member import FAILING, GROUP, HELD, TOPIC


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store") as opened:
        yield opened


class Crew:
    """Processes of one group, each with one thread."""

    def __init__(self, store: MessageStore, stack: ExitStack, lease_ms: int, mode: str) -> None:
        self.store, self._stack, self._lease_ms, self._mode = store, stack, lease_ms, mode
        self.members: list[Member] = []

    def join(self) -> Member:
        member = Member(self.store.root, len(self.members), self._lease_ms, 0.0, 1, self._mode)
        self._stack.callback(member.process.wait, 20)
        self._stack.callback(member.process.kill)
        self.members.append(member)
        return member

    def settle(self, *shares: int) -> None:
        wait_for(lambda: None not in owners(self.store), "each queue has an owner")
        wait_for(lambda: sorted(owners(self.store).values()) == sorted(shares), f"the shares are {shares}")

    def go(self) -> None:
        (self.store.root.parent / "go").touch()

    def names(self, kind: str) -> list[str]:
        return [name for member in self.members for name in member.names(kind)]

    def attempts(self, name: str) -> list[int]:
        lines = [line.split() for member in self.members for line in member.lines("start")]
        return sorted(int(line[4]) for line in lines if line[1] == name)


@pytest.fixture
def crew(store: MessageStore, request: pytest.FixtureRequest) -> Iterator[Crew]:
    lease_ms, mode = getattr(request, "param", (10_000, "plain"))
    send(store, 0)
    with ExitStack() as stack:
        yield Crew(store, stack, lease_ms, mode)


def with_held(crew: Crew, count: int, name: str = HELD) -> tuple[Member, Member]:
    """Start processes, one of which is in the call of a long message, while another one has its queues.

    Returns both.
    """
    for _ in range(count):
        crew.join()
    crew.settle(*[4 // count] * count) if 4 % count == 0 else crew.settle(2, 1, 1)
    with Producer(crew.store) as producer:
        producer.send(Message(TOPIC, name.encode()))
    wait_for(lambda: name in crew.names("start"), "the long message has begun")
    long = next(member for member in crew.members if name in member.names("start"))
    names = send(crew.store, 40)
    wait_for(lambda: set(names) <= set(crew.names("end")), "the short ones are handled")
    wait_for(lambda: len(behind(crew.store)) == 1, "they are acknowledged")
    assert name not in crew.names("end")
    (queue,) = behind(crew.store)
    heir = next(member for member in crew.members if f"@{member.process.pid}#" in (queue.owner or ""))
    assert heir is not long
    return long, heir


def behind(store: MessageStore) -> list[QueueLag]:
    return [queue for queue in queues(store) if queue.lag]


ALL_MODES = [(10_000, "plain"), (10_000, "batch"), (10_000, "async")]


@pytest.mark.guarantee("G126")
@pytest.mark.parametrize("crew", ALL_MODES, indirect=True, ids=lambda crew: crew[1])
def test_short_messages_do_not_wait_for_a_long_one_beside_an_idle_process(crew: Crew) -> None:
    # Given a process that is in the call of a long message, and messages in its queues
    long, _ = with_held(crew, 2)

    # When the long call ends
    crew.go()
    wait_for(lambda: is_finished(crew.store), "everything is finished")

    # Then it has run once, in the process that had its queue before, and nothing was refused
    assert sorted(crew.names("start")) == sorted(crew.names("end"))
    assert crew.names("start").count(HELD) == 1
    crew.settle(2, 2)
    for member in crew.members:
        member.stop()
    assert long.names("end").count(HELD) == 1
    assert [member.lines("refused") for member in crew.members] == [["refused 0"]] * 2


@pytest.mark.guarantee("G126")
def test_the_message_of_a_call_that_is_killed_runs_again_with_its_death_counted(crew: Crew) -> None:
    long, heir = with_held(crew, 2)
    long.send_signal(signal.SIGKILL)
    wait_for(lambda: HELD in heir.names("start"), "it is delivered again")
    crew.go()
    wait_for(lambda: is_finished(crew.store), "everything is finished")
    assert crew.attempts(HELD) == [1, 2]
    assert crew.names("end").count(HELD) == 1


@pytest.mark.guarantee("G126")
@pytest.mark.parametrize("crew", [(2_000, "plain")], indirect=True)
def test_the_message_of_a_process_that_is_stopped_past_its_lease_runs_again_and_its_late_end_is_refused(
    crew: Crew,
) -> None:
    long, heir = with_held(crew, 2)
    long.stand_still()
    wait_for(lambda: HELD in heir.names("start"), "it is delivered again")

    # While it runs there, the process that was stopped goes on, and ends first
    heir.stand_still()
    long.send_signal(signal.SIGCONT)
    crew.go()
    wait_for(lambda: HELD in long.names("end"), "the late call has ended")
    time.sleep(0.2)
    assert not is_finished(crew.store)
    heir.send_signal(signal.SIGCONT)
    wait_for(lambda: is_finished(crew.store), "everything is finished")
    long.stop()
    assert long.lines("refused") == ["refused 1"]


@pytest.mark.guarantee("G126")
def test_a_long_call_that_raises_is_stored_once_for_its_retry(crew: Crew) -> None:
    _, heir = with_held(crew, 2, FAILING)
    crew.go()
    wait_for(lambda: is_finished(crew.store), "everything is finished")
    assert crew.names("start").count(FAILING) == 1
    assert FAILING not in heir.names("start")
    (group,) = [each for each in Admin(crew.store).groups() if each.group == GROUP]
    assert sum(slot.load("retried") for slot in crew.store.groups) == 1
    assert group.waiting == 1


@pytest.mark.guarantee("G126")
def test_the_owner_after_the_next_one_leaves_the_message_to_its_call_too(crew: Crew) -> None:
    long, heir = with_held(crew, 3)
    heir.send_signal(signal.SIGKILL)
    names = send(crew.store, 40, "later")
    wait_for(lambda: set(names) <= set(crew.names("end")), "the third process has its queues")
    crew.go()
    wait_for(lambda: is_finished(crew.store), "everything is finished")
    assert crew.attempts(HELD) == [1]
    assert HELD in long.names("end")


@pytest.mark.guarantee("G126")
def test_a_process_gets_its_queue_back_while_its_call_runs(crew: Crew) -> None:
    long, heir = with_held(crew, 2)
    heir.stop()
    wait_for(lambda: len(owners(crew.store)) == 1 and None not in owners(crew.store), "it has all queues")
    crew.go()
    wait_for(lambda: is_finished(crew.store), "everything is finished")
    assert crew.attempts(HELD) == [1]
    assert HELD in long.names("end")


@pytest.mark.guarantee("G126")
def test_queues_stay_where_they_are_when_no_process_is_idle(crew: Crew) -> None:
    for _ in range(2):
        crew.join()
    crew.settle(2, 2)
    send(crew.store, 4, HELD)
    wait_for(lambda: len(crew.names("start")) == 2, "both are in a long call")
    before = owners(crew.store)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        time.sleep(0.1)
    assert owners(crew.store) == before
    crew.go()
    wait_for(lambda: is_finished(crew.store), "everything is finished")
    assert sorted(crew.names("end")) == [f"{HELD}{number}" for number in range(4)]


@pytest.mark.guarantee("G126")
@pytest.mark.parametrize("crew", [(10_000, "queue"), (10_000, "key")], indirect=True, ids=lambda crew: crew[1])
def test_a_queue_whose_order_is_kept_stays_with_its_call(crew: Crew) -> None:
    for _ in range(2):
        crew.join()
    crew.settle(2, 2)
    send(crew.store, 1, HELD)
    wait_for(lambda: len(crew.names("start")) == 1, "it has begun")
    epochs = [queue.epoch for queue in Admin(crew.store).lag(GROUP)]
    send(crew.store, 8)
    time.sleep(3)
    assert [queue.epoch for queue in Admin(crew.store).lag(GROUP)] == epochs
    crew.go()
    wait_for(lambda: is_finished(crew.store), "everything is finished")
    assert sorted(crew.names("start")) == sorted(crew.names("end"))


def test_views_show_where_the_message_runs_and_no_spare_process(crew: Crew) -> None:
    long, _ = with_held(crew, 2)
    (group,) = [each for each in Admin(crew.store).groups() if each.group == GROUP]
    (call,) = group.calls
    assert call.pid == long.process.pid
    assert group.spare == ()
    with Reading(str(crew.store.root)) as reading:
        assert [each for each in findings.look(reading) if each.level and each.check != "workers"] == []
    crew.go()
