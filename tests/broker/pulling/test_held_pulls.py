"""Pulls that wait: for a message of any process, for their time, for their queue."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqclient.broker.pulling import arrivals, held_pulls
from rmqclient.remoting.bodies import Subscription
from rmqclient.store import MessageQueue, layout
from rmqclient.store.runtime.shared_state import queue_slot_at
from rmqclient.store.wire import decode_records
from tests.broker.pulling.room import PATIENCE_S, QUEUE, Client, PullRoom, pull_room
from tests.support.stores import TOPIC

WAITING: dict[str, Any] = {"sysFlag": 2}

PRODUCER = """
import sys
from rmqclient import Message, Producer
with Producer(sys.argv[1]) as producer:
    print("ready", flush=True)
    for line in sys.stdin:
        producer.send(Message("orders", b"from afar", tags=line.strip() or None))
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PullRoom]:
    monkeypatch.setattr(arrivals, "LONGEST_SLEEP_S", 3 * PATIENCE_S)  # nothing but a ring ends a wait
    with pull_room(tmp_path / "store") as opened:
        yield opened


@contextmanager
def another_process(room: PullRoom) -> Iterator[subprocess.Popen[str]]:
    """A local producer that sends a message with the tag of each line that it is given."""
    command = [sys.executable, "-c", PRODUCER, str(room.store.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def tell(process: subprocess.Popen[str], tag: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{tag}\n")
    process.stdin.flush()


def test_a_message_of_another_process_ends_the_wait(room: PullRoom) -> None:
    async def scenario() -> None:
        client = Client()
        assert room.ask(client, 0, **WAITING) is None
        with another_process(room) as producer:
            tell(producer, "a")
            answer = await asyncio.wait_for(client.answers.get(), PATIENCE_S)
            producer.communicate()
        assert (answer.code, [each.body for each in decode_records(answer.body)]) == (0, [b"from afar"])
        assert room.room.held.count == 0

    asyncio.run(scenario())


def test_a_message_that_is_not_wanted_leaves_the_pull_waiting_behind_it(room: PullRoom) -> None:
    room.rules.subscriptions[TOPIC] = Subscription(TOPIC, "b")

    async def scenario() -> None:
        client = Client()
        assert room.ask(client, 0, **WAITING) is None
        room.send("a")
        await passed_over(room, 1)
        assert client.answers.empty()
        room.send("a", "b")
        answer = await asyncio.wait_for(client.answers.get(), PATIENCE_S)
        assert [each.tags for each in decode_records(answer.body)] == ["b"]

    asyncio.run(scenario())


def test_a_pull_whose_time_is_up_is_told_so_and_goes_on_behind_what_it_passed_over(
    room: PullRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.rules.subscriptions[TOPIC] = Subscription(TOPIC, "b")

    async def scenario() -> None:
        nothing = await room.pull(0, suspendTimeoutMillis=1, **WAITING)
        assert (nothing.code, nothing.fields["nextBeginOffset"]) == (19, "0")
        client = Client()
        assert room.ask(client, 0, suspendTimeoutMillis=15_000, **WAITING) is None
        room.send("a")
        await passed_over(room, 1)
        loop, now = asyncio.get_running_loop(), asyncio.get_running_loop().time
        monkeypatch.setattr(loop, "time", lambda: now() + 16)
        passed = await asyncio.wait_for(client.answers.get(), PATIENCE_S)
        assert (passed.code, passed.fields["nextBeginOffset"], passed.body) == (20, "1", b"")

    asyncio.run(scenario())


def test_without_the_flag_nothing_waits(room: PullRoom) -> None:
    assert room.pull_now(0).code == 19
    assert room.room.held.count == 0


def test_answers_come_in_the_order_of_the_messages_and_not_of_the_pulls(room: PullRoom) -> None:
    async def scenario() -> None:
        client = Client()
        room.rules.subscriptions[TOPIC] = Subscription(TOPIC, "late")
        first = room.ask(client, 0, sysFlag=2)
        second = room.ask(client, 0, sysFlag=6, subscription="early")
        assert (first, second) == (None, None)
        room.send("early")
        early = await asyncio.wait_for(client.answers.get(), PATIENCE_S)
        room.send("late")
        late = await asyncio.wait_for(client.answers.get(), PATIENCE_S)
        assert (early.opaque, late.opaque) == (2, 1)

    asyncio.run(scenario())


def test_the_pulls_of_a_closed_connection_are_dropped(room: PullRoom) -> None:
    async def scenario() -> None:
        gone, there = Client(), Client()
        for client in (gone, gone, there):
            assert room.ask(client, 0, **WAITING) is None
        gone.close()
        assert room.room.held.count == 1
        room.send("a")
        assert (await asyncio.wait_for(there.answers.get(), PATIENCE_S)).code == 0
        assert gone.answers.empty()

    asyncio.run(scenario())


def test_one_message_ends_the_wait_of_many(room: PullRoom) -> None:
    async def scenario() -> None:
        clients = [Client() for _ in range(300)]
        for client in clients:
            assert room.ask(client, 0, **WAITING) is None
        room.send("a")
        answers = [await asyncio.wait_for(client.answers.get(), PATIENCE_S) for client in clients]
        assert {answer.code for answer in answers} == {0}

    asyncio.run(scenario())


def test_no_more_pulls_wait_than_allowed(room: PullRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.room.held, "_most", 2)

    async def scenario() -> None:
        client = Client()
        asked = [room.ask(client, 0, **WAITING) for _ in range(3)]
        assert asked[:2] == [None, None]
        assert asked[2] is not None
        assert asked[2].code == 2
        assert "2 pulls wait" in (asked[2].remark or "")

    asyncio.run(scenario())


def test_a_pull_waits_for_its_queue(room: PullRoom) -> None:
    room.send("a")
    room.rules.is_lease_held = False

    async def scenario() -> None:
        client = Client()
        assert room.ask(client, 0, **WAITING) is None
        room.send("a")
        room.rules.free()
        answer = await asyncio.wait_for(client.answers.get(), PATIENCE_S)
        assert len(decode_records(answer.body)) == 2

    asyncio.run(scenario())


def test_a_pull_asks_again_for_its_queue_by_itself(room: PullRoom) -> None:
    room.send("a")
    room.rules.is_lease_held = False

    async def scenario() -> None:
        client = Client()
        assert room.ask(client, 0, **WAITING) is None
        room.rules.is_lease_held = True
        assert (await asyncio.wait_for(client.answers.get(), PATIENCE_S)).code == 0

    asyncio.run(scenario())


def test_a_pull_that_loses_its_queue_while_it_waits_is_not_fed(room: PullRoom) -> None:
    async def scenario() -> None:
        client = Client()
        assert room.ask(client, 0, suspendTimeoutMillis=500, **WAITING) is None
        room.rules.is_lease_held = False
        room.send("a")
        answer = await asyncio.wait_for(client.answers.get(), PATIENCE_S)
        assert (answer.code, answer.fields["nextBeginOffset"]) == (19, "0")

    asyncio.run(scenario())


def test_a_message_lets_only_its_queue_be_looked_at(room: PullRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [f"others-{number}" for number in range(20)]
    for topic in others:
        room.store.topics.create(topic, 1)
        room.rules.subscriptions[topic] = Subscription(topic)
    looked: list[MessageQueue] = []
    end = room.room._reader.end

    def noted(queue: MessageQueue) -> int:
        looked.append(queue)
        return end(queue)

    async def scenario() -> None:
        # Given pulls of many queues, at each of which one message has come
        client = Client()
        for topic in [*others, TOPIC]:
            assert room.ask(client, 0, topic=topic, **WAITING) is None
        room.send("a")
        assert (await asyncio.wait_for(client.answers.get(), PATIENCE_S)).code == 0
        assert room.ask(client, 1, **WAITING) is None
        room.send("b")
        assert (await asyncio.wait_for(client.answers.get(), PATIENCE_S)).code == 0
        assert room.ask(client, 2, **WAITING) is None
        # When the next one comes, then the other queues are let alone
        monkeypatch.setattr(room.room.held._reader, "end", noted)
        room.send("c")
        assert (await asyncio.wait_for(client.answers.get(), PATIENCE_S)).code == 0
        assert {queue.topic for queue in looked} == {TOPIC}

    asyncio.run(scenario())


def test_a_sender_that_is_late_with_its_ring_does_not_leave_the_queue_without_a_bell(room: PullRoom) -> None:
    room.rules.subscriptions[TOPIC] = Subscription(TOPIC, "b")

    async def scenario() -> None:
        client = Client()
        assert room.ask(client, 0, **WAITING) is None
        room.send("a")
        await passed_over(room, 1)
        # Given that a sender whose message was looked at takes the bells of the queue only now, and rings them
        bell = room.room.held.arrivals.bell
        take_bells(room)
        bell.ring()
        await until_armed(room)
        # Then the next message is heard of
        room.send("b")
        answer = await asyncio.wait_for(client.answers.get(), PATIENCE_S)
        assert [each.tags for each in decode_records(answer.body)] == ["b"]

    asyncio.run(scenario())


def test_a_process_that_waits_with_the_same_bell_keeps_no_message_from_a_pull(room: PullRoom) -> None:
    async def scenario() -> None:
        client = Client()
        assert room.ask(client, 0, **WAITING) is None
        await until_looked_at(room)
        # When another process asks for the same bell between a message and the look at it
        room.send("a")
        room.room.held.arrivals.bell.arm(QUEUE)
        assert (await asyncio.wait_for(client.answers.get(), PATIENCE_S)).code == 0

    asyncio.run(scenario())


def bells_at(room: PullRoom) -> int:
    """Return where the word is whose bits are the bells that the next sender rings."""
    return queue_slot_at(room.store.topics.slot(QUEUE)) + layout.QUEUE_SLOT.at["waiting_lanes"]


def take_bells(room: PullRoom) -> None:
    room.store.state.words.store(bells_at(room), 0)


async def until_armed(room: PullRoom) -> None:
    """Wait until the next sender has a bell to ring."""
    await turns_until(lambda: room.store.state.words.load(bells_at(room)) != 0)


async def until_looked_at(room: PullRoom) -> None:
    """Ring, and wait until that was heard."""
    looked: list[None] = []
    arrivals_of = room.room.held.arrivals
    look = arrivals_of._look
    arrivals_of._look = lambda: looked.append(look())
    arrivals_of.bell.ring()
    await turns_until(lambda: bool(looked))


async def turns_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""

    async def turn() -> None:
        while not condition():
            await asyncio.sleep(0)

    await asyncio.wait_for(turn(), PATIENCE_S)


async def passed_over(room: PullRoom, position: int) -> None:
    """Wait until every held pull stands at ``position``."""

    async def look() -> None:
        held = room.room.held._by_queue
        while any(pull.position != position for pulls in held.values() for pull in pulls):
            await asyncio.sleep(0)

    await asyncio.wait_for(look(), PATIENCE_S)


def test_a_pull_waits_no_longer_than_a_connection_may_be_idle() -> None:
    assert held_pulls.LONGEST_WAIT_S <= 120


def test_a_server_that_ends_answers_what_waits(room: PullRoom) -> None:
    room.rules.subscriptions[TOPIC] = Subscription(TOPIC, version=1)

    async def scenario() -> None:
        waiting, late = Client(), Client()
        assert room.ask(waiting, 0, **WAITING) is None
        assert room.ask(late, 0, subVersion=2) is None
        room.room.drain()
        assert (waiting.answers.get_nowait().code, late.answers.get_nowait().code) == (19, 25)
        assert room.room.held.count == 0

    asyncio.run(scenario())
