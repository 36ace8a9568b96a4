"""What a kill does to a compressed batch: its record comes again, and no other; in order, from where it was."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.admin import Admin
from rmqclient.failures.failure import history
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.store.bodies import Compression
from tests.groups.delivery.test_attempts import attempts, delayed, kill
from tests.groups.delivery.test_order import KEYS, QUEUES, chance, group_of, has_ended, queue_of
from tests.groups.membership.test_takeover import Member, is_finished, members, store, wait_for
from tests.groups.order import ends, violations
from tests.groups.processes.member import GROUP, SLOW
from tests.groups.processes.member import TOPIC as MEMBER_TOPIC
from tests.groups.processes.ordered_member import TOPIC

__all__ = ["chance", "store"]

BATCH = 100


def send_batches(store: MessageStore, count: int, keys: list[str], at: int = -1, todo: str = "") -> dict[str, set[int]]:
    """Send batches to all queues, and return the numbers of each lane, which is a queue.

    ``todo`` is what the handler is to do with the message at place ``at`` of each lane.
    """
    sent: dict[str, set[int]] = {}
    with Producer(store) as producer:
        producer.create_topic(TOPIC, QUEUES)
        for number in range(count):
            key = keys[number % len(keys)]
            lane = str(queue_of(key))
            places = range(len(sent.get(lane, ())), len(sent.get(lane, ())) + BATCH)
            sent.setdefault(lane, set()).update(places)
            messages = [Message(TOPIC, f"{lane} {place} {todo if place == at else ''}".encode()) for place in places]
            producer.send_batch(messages, key, compression=Compression.ZSTD)
    return sent


@pytest.mark.guarantee("G23")
@pytest.mark.guarantee("G39")
def test_an_ordered_queue_goes_on_inside_of_a_batch_when_its_owners_are_killed(
    store: MessageStore, chance: random.Random
) -> None:
    # Given owners that handle 300 of every queue before the last of them was killed, however slow the killer is
    sent = send_batches(store, 20, KEYS, 300, "wait")
    assert all(300 in lane for lane in sent.values())
    with group_of(store, "queue", pause_ms=8) as group:
        group.start(2)
        for kills in range(1, 4):
            wait_for(partial(has_ended, group, 300 * kills), "they are in the middle of it")
            group.kill(chance.choice(group.alive))
            assert not is_finished(store)
            group.start()
        Path(f"{group.journal}.go").touch()
        wait_for(lambda: is_finished(store), "everything is handled", timeout_s=60)
        assert ends(group.history()) == sent
        assert violations(group.history(), killed=group.killed) == []


@pytest.mark.guarantee("G24")
@pytest.mark.guarantee("G39")
def test_the_attempts_of_one_that_kills_are_counted_in_an_ordered_queue_and_those_of_the_others_are_not(
    store: MessageStore,
) -> None:
    sent = send_batches(store, 2, KEYS[:1], 57, "die")
    with group_of(store, "queue", pause_ms=0) as group:
        while not (Admin(store).lag(GROUP) and is_finished(store)):
            for member in [member for member in group.alive if member.poll() is not None]:
                group.kill(member)
            if not group.alive:
                group.start()
        assert ends(group.history()) == sent
        assert violations(group.history(), killed=group.killed) == []
        starts = [line.split()[2:] for line in group.history() if line.split()[1] == "start"]
    for lane in sent:
        assert [int(attempt) for at, place, attempt in starts if (at, place) == (lane, "57")] == [1, 2, 3, 4]
        others = [attempt for at, place, attempt in starts if at == lane and place != "57"]
        assert others.count("1") >= len(others) - len(group.killed)


@pytest.mark.guarantee("G7")
@pytest.mark.guarantee("G39")
def test_a_consumer_killed_in_the_middle_of_a_batch_gets_the_rest_of_its_record_again_and_no_other(
    store: MessageStore,
) -> None:
    with Producer(store) as producer:
        producer.create_topic(MEMBER_TOPIC, 1)
        for record in range(3):
            names = [f"r{record}-{number}" for number in range(20)]
            messages = [Message(MEMBER_TOPIC, name.encode()) for name in names]
            producer.send_batch(messages, compression=Compression.LZ4)
    with members(store, 1, pause_s=0.05) as (first,):
        wait_for(lambda: "r1-9" in first.names("end"), "it is in the middle of the second one")
        kill(first)
        second = Member(store.root, 9, 10_000, 0.0)
        wait_for(lambda: is_finished(store), "everything is handled")
        second.stop()
    ended, again = first.names("end"), second.names("end")
    everything = [f"r{record}-{number}" for record in range(3) for number in range(20)]
    assert sorted({*ended, *again}) == sorted(everything)
    assert sorted(again) == sorted(everything[-len(again) :])
    assert len(ended) + len(again) - len(everything) <= 1, "only what was running, or had just ended, comes again"
    # On a busy host the kill can come when the first member has finished the second record, and begun the third.
    of_r1 = {int(line.split()[4]) for line in second.lines("start") if line.split()[1].startswith("r1")}
    assert of_r1 == ({2} if "r1-19" in again else set())
    of_r2 = {int(line.split()[4]) for line in second.lines("start") if line.split()[1].startswith("r2")}
    assert of_r2 == ({1} if of_r1 else {2})


@pytest.mark.guarantee("G39")
def test_a_consumer_that_leaves_in_the_middle_of_a_batch_leaves_only_the_rest_of_it(store: MessageStore) -> None:
    names = [f"m{number}" for number in range(100)]
    with Producer(store) as producer:
        producer.create_topic(MEMBER_TOPIC, 1)
        producer.send_batch([Message(MEMBER_TOPIC, name.encode()) for name in names], compression=Compression.LZ4)
    with members(store, 1, pause_s=0.02) as (first,):
        wait_for(lambda: "m9" in first.names("end"), "it is in the middle")
        first.stop()
        second = Member(store.root, 9, 10_000, 0.0)
        wait_for(lambda: is_finished(store), "everything is handled")
        second.stop()
    assert first.names("end") + second.names("end") == names


@pytest.mark.guarantee("G7")
@pytest.mark.guarantee("G39")
def test_with_several_threads_a_kill_repeats_messages_of_the_records_that_were_in_flight_and_loses_none(
    store: MessageStore,
) -> None:
    with Producer(store) as producer:
        producer.create_topic(MEMBER_TOPIC, 1)
        for record in range(12):
            messages = [Message(MEMBER_TOPIC, b"r%d-%d" % (record, number)) for number in range(20)]
            producer.send_batch(messages, compression=Compression.ZLIB)
    with members(store, 1, pause_s=0.01, threads=4) as (first,):
        wait_for(lambda: len(first.names("end")) > 100, "it is in the middle")
        kill(first)
        second = Member(store.root, 9, 10_000, 0.0, threads=4)
        wait_for(lambda: is_finished(store), "everything is handled")
        second.stop()
    ended, again = first.names("end"), second.names("end")
    assert sorted({*ended, *again}) == sorted(f"r{record}-{number}" for record in range(12) for number in range(20))
    assert len(again) == len(set(again))
    whole = {
        name.split("-")[0] for name in ended if sum(other.startswith(f"{name.split('-')[0]}-") for other in ended) == 20
    }
    repeated = {name.split("-")[0] for name in again if name in ended}
    assert len(repeated & whole) <= 4, "a record comes again when a message of it was not finished, or had just been"


@pytest.mark.guarantee("G20")
@pytest.mark.guarantee("G39")
def test_after_the_second_death_the_unfinished_messages_of_a_batch_are_sent_back_one_by_one(
    store: MessageStore,
) -> None:
    names = ["a", SLOW, "b", "c"]
    with Producer(store) as producer:
        producer.create_topic(MEMBER_TOPIC, 1)
        producer.send_batch([Message(MEMBER_TOPIC, name.encode()) for name in names], compression=Compression.ZSTD)
    for number, attempt in ((1, 1), (2, 2)):
        member = Member(store.root, number, 10_000, 0.0)
        wait_for(lambda: attempts(member, SLOW) == [attempt], "it is being handled")  # noqa: B023 - called here
        kill(member)
    with Producer(store) as producer:
        producer.send(Message(MEMBER_TOPIC, b"later"))
    third = Member(store.root, 3, 10_000, 0.0)
    wait_for(lambda: third.names("end") == ["later"], "what comes later is handled")
    wait_for(lambda: len(delayed(store)) == 3, "each message that was not finished is sent back")
    third.stop()
    assert [[each["error"] for each in history(waiting)] for waiting in delayed(store)] == [["death", "death"]] * 3
    queue = MessageQueue("SCHEDULE_TOPIC_XXXX", 3)
    assert sorted(store.messages.at(queue, offset).body.decode() for offset in range(3)) == sorted(names[1:])
    assert is_finished(store)


@pytest.mark.guarantee("G39")
def test_where_an_ordered_queue_stands_inside_of_a_batch_is_known_after_every_process_died(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        sent = send_batches(store, 1, KEYS[:1])
    (lane,) = sent
    group = group_of(store, "queue", pause_ms=8)
    with group as found:
        found.start()
        wait_for(lambda: has_ended(found, 40), "it is in the middle of it")
        (only,) = found.alive
        found.kill(only)  # the only process that has the store open
        found.start()
        wait_for(lambda: ends(found.history()).get(lane) == sent[lane], "everything is handled")
        assert violations(found.history(), killed=found.killed) == []
        found.leave(found.alive[0])
