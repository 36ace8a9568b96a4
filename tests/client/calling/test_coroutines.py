"""Coroutines: a bounded number of them takes turns, and the next message begins when one of them ends."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.errors import HandlerError
from rmqclient.opening import Place
from tests.client.conftest import NOWHERE, SOON, consuming, wait_for


@pytest.mark.guarantee("G60")
def test_the_next_message_begins_when_one_ends_and_no_more_than_allowed_run(place: Place, topic: str) -> None:
    # Given 3 coroutines and one message that takes until all others have been handled
    app, ended, go_on = App(NOWHERE), Counter[bytes](), threading.Event()
    running = most = 0

    @app.handler(topic, group=topic, coroutines=3)
    async def handle(message: ReceivedMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        while message.body == b"0" and not go_on.is_set():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        running -= 1
        ended[message.body] += 1

    with Producer(place) as producer:
        producer.send_batch([Message(topic, b"%d" % number) for number in range(100)])
        with consuming(place, app) as consumer:
            wait_for(lambda: len(ended) == 99, "the slow one holds up no other one")
            assert consumer.counters.in_flight == 1
            go_on.set()
            wait_for(lambda: consumer.counters.handled == 100, "all are acknowledged")
    assert most == 3
    assert set(ended.values()) == {1}


def test_each_thread_has_its_number_of_coroutines_and_all_share_one_loop(place: Place, topic: str) -> None:
    app, together, loops = App(NOWHERE), list[asyncio.Event](), set[asyncio.AbstractEventLoop]()

    @app.handler(topic, group=topic, threads=2, coroutines=4)
    async def handle(message: ReceivedMessage) -> None:
        loops.add(asyncio.get_running_loop())
        together.append(asyncio.Event())
        if len(together) == 8:
            for event in together:
                event.set()
        await together[-1 if len(together) == 8 else len(together) - 1].wait()

    with Producer(place) as producer:
        producer.send_batch([Message(topic, b"") for _ in range(8)])
        with consuming(place, app) as consumer:
            wait_for(lambda: consumer.counters.handled == 8, "eight meet")
    assert len(loops) == 1


def test_the_end_waits_for_coroutines_and_begins_no_other_one(place: Place, topic: str) -> None:
    app, begun, may_end, ended = App(NOWHERE), threading.Event(), threading.Event(), list[bytes]()

    @app.handler(topic, group=topic, coroutines=1)
    async def handle(message: ReceivedMessage) -> None:
        begun.set()
        while not may_end.is_set():
            await asyncio.sleep(0.005)
        ended.append(message.body)

    with Producer(place) as producer:
        producer.send_batch([Message(topic, b"%d" % number) for number in range(10)])
        with consuming(place, app) as consumer:
            assert begun.wait(20)
            consumer.stop_taking()
            may_end.set()
    assert ended == [b"0"]


def test_a_message_whose_task_was_cancelled_before_it_began_is_handled(place: Place, topic: str) -> None:
    # Given a handler that cancels every other task of its loop at the first message
    app, cancelled = App(NOWHERE), list[int]()

    @app.handler(topic, group=topic)
    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"0":
            others = asyncio.all_tasks() - {asyncio.current_task()}
            cancelled.append(sum(task.cancel() for task in others))

    # When several messages begin together
    with Producer(place) as producer:
        producer.send_batch([Message(topic, b"%d" % number) for number in range(8)])
        with consuming(place, app) as consumer:
            wait_for(lambda: consumer.counters.handled == 8, "none stays where nobody takes it")
            assert consumer.counters.in_flight == 0
    assert sum(cancelled) > 0


def test_a_failed_coroutine_comes_again_and_blocks_no_other_one(place: Place, topic: str) -> None:
    app, attempts = App(NOWHERE), Counter[tuple[bytes, int]]()

    @app.handler(topic, group=topic, retry=SOON)
    async def handle(message: ReceivedMessage) -> None:
        attempts[message.body, message.delivery_attempt] += 1
        if message.body == b"3" and message.delivery_attempt == 1:
            raise asyncio.CancelledError

    with Producer(place) as producer:
        producer.send_batch([Message(topic, b"%d" % number) for number in range(10)])
        with consuming(place, app) as consumer:
            wait_for(lambda: consumer.counters.handled == 10, "all are handled")
            assert consumer.counters.failed == 1
    assert attempts[b"3", 2] == 1
    assert sum(attempts.values()) == 11


def test_a_message_that_killed_its_process_runs_alone(tmp_path: Path) -> None:
    # Given a process that dies with message 2 while others run beside it
    root = tmp_path / "store"
    with Producer(root) as producer:
        producer.create_topic("t", 1)
        producer.send_batch([Message("t", b"%d" % number) for number in range(6)])
    child = os.fork()
    if child == 0:
        run_until_it_dies(root)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    # Then the ones that ran at the death each run alone, and a death would be its own
    app, running, beside = App(root), list[bytes](), Counter[bytes]()

    @app.handler("t", group="g")
    async def handle(message: ReceivedMessage) -> None:
        running.append(message.body)
        if message.delivery_attempt > 1:
            beside[message.body] += len(running) - 1
        await asyncio.sleep(0.005)
        if message.delivery_attempt > 1:
            beside[message.body] += len(running) - 1
        running.remove(message.body)

    with app.running() as consumer:
        wait_for(lambda: consumer.counters.handled == 6, "all are handled")
    assert set(beside) == {b"%d" % number for number in range(6)}
    assert sum(beside.values()) == 0


def run_until_it_dies(root: Path) -> None:
    app, running = App(root), set[bytes]()

    @app.handler("t", group="g")
    async def handle(message: ReceivedMessage) -> None:
        running.add(message.body)
        while len(running) < 6:
            await asyncio.sleep(0)
        os._exit(7)

    try:
        with app.running():
            threading.Event().wait(30)
    finally:
        os._exit(1)


@pytest.mark.parametrize("coroutines", [0, 1_001, True, "4"])
def test_a_number_of_coroutines_out_of_bounds_is_refused(coroutines: int) -> None:
    with pytest.raises(HandlerError, match="1 to 1,000 coroutines"):
        App(NOWHERE).handler("t", group="g", coroutines=coroutines)


def test_coroutines_are_for_async_handlers_without_an_order() -> None:
    with pytest.raises(HandlerError, match="which is not async: use threads"):
        App(NOWHERE).handler("t", group="g", coroutines=4)(lambda message: message)
    with pytest.raises(HandlerError, match="each of its threads runs one coroutine"):
        App(NOWHERE).handler("t", group="g", coroutines=4, order="key")


def test_a_lag_of_nothing_is_left(place: Place, topic: str) -> None:
    app = App(NOWHERE)

    @app.handler(topic, group=topic, coroutines=7)
    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)

    with Producer(place) as producer:
        for number in range(500):
            producer.send(Message(topic, b"%d" % number))
        with consuming(place, app), Admin(place) as admin:
            wait_for(lambda: all(queue.lag == 0 for queue in admin.lag(topic)), "every offset is committed")
