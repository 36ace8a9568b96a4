"""Attempts are counted although the process dies: real processes, real kills."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rmqclient import RetryPolicy
from rmqclient.failures.failure import history
from rmqclient.failures.retry import retry_topic
from rmqclient.store import MessageQueue, MessageStore, open_store
from tests.groups.membership.test_takeover import Member, is_finished, members, queues, send, store, wait_for
from tests.groups.processes.member import GROUP, TOPIC

__all__ = ["store"]


def kill(member: Member) -> None:
    member.send_signal(signal.SIGKILL)
    member.process.wait(20)


def attempts(member: Member, name: str = "m0") -> list[int]:
    return [int(line.split()[4]) for line in member.lines("start") if line.split()[1] == name]


def delayed(store: MessageStore) -> list[dict[str, str]]:
    """The properties of what waits for the retry after the second attempt."""
    queue = MessageQueue("SCHEDULE_TOPIC_XXXX", RetryPolicy().delay_level(2) - 1)
    if "SCHEDULE_TOPIC_XXXX" not in store.topics.topics():
        return []
    return [store.messages.at(queue, offset).properties for offset in range(store.topics.max_offset(queue))]


@pytest.mark.guarantee("G20")
def test_a_message_whose_process_died_is_delivered_at_once_as_the_next_attempt(store: MessageStore) -> None:
    send(store, 1)
    with members(store, 1, pause_s=30) as (first,):
        wait_for(lambda: attempts(first) == [1], "it is being handled")
        kill(first)
        second = Member(store.root, 9, 10_000, 0.0)
        took = wait_for(lambda: is_finished(store) and second.names("end"), "it is handled")
        assert took < 2.0, "a lone kill costs no delay"
        assert attempts(second) == [2]
        second.stop()
    assert delayed(store) == []


@pytest.mark.guarantee("G20")
@pytest.mark.guarantee("G21")
def test_after_the_second_death_it_waits_for_its_delay_and_the_others_go_on(store: MessageStore) -> None:
    names = send(store, 1)
    for number, attempt in ((1, 1), (2, 2)):
        member = Member(store.root, number, 10_000, 30)
        wait_for(lambda: attempts(member) == [attempt], "it is being handled")  # noqa: B023 - called here
        kill(member)
    names = send(store, 5, "later")
    third = Member(store.root, 3, 10_000, 0.0)
    wait_for(lambda: sorted(third.names("end")) == names, "the others are handled")
    wait_for(lambda: delayed(store), "the message is sent back")
    third.stop()
    (waiting,) = delayed(store)
    assert attempts(third) == []
    assert (waiting["REAL_TOPIC"], waiting["RETRY_TOPIC"]) == (retry_topic(GROUP), TOPIC)
    assert [(each["attempt"], each["error"]) for each in history(waiting)] == [(1, "death"), (2, "death")]
    assert all(queue.lag == 0 for queue in queues(store))


@pytest.mark.guarantee("G20")
def test_the_attempts_are_known_after_every_process_died(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        send(store, 1)
    for attempt in (1, 2):
        member = Member(root, attempt, 10_000, 30)  # the only process that has the store open
        wait_for(lambda: attempts(member) == [attempt], "it is being handled")  # noqa: B023 - called here
        kill(member)
    last = Member(root, 3, 10_000, 0.0)
    with open_store(root) as store:
        wait_for(lambda: len(delayed(store)) == 1, "it waits for its third attempt")
        last.stop()
        assert last.names("start") == []
