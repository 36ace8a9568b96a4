"""A server in a process of its own: clients of this library and local workers in one group."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store
from rmqclient.testing import Server, serve

TOPIC, GROUP = "orders", "billing"
LONGEST_S = 30.0

Handled = list[tuple[str, int, int]]
"""By whom, and the queue and the queue offset."""
Start = Callable[..., PushConsumer]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    open_store(tmp_path / "store").close()
    with serve(tmp_path / "store") as running:
        with Producer(running.root) as producer:
            producer.create_topic(TOPIC, 4)
        yield running


@pytest.fixture
def handled() -> Handled:
    return []


@pytest.fixture
def member(server: Server, handled: Handled) -> Iterator[Start]:
    """What starts a member of the group, local or remote, that notes what it handles."""
    writing = Lock()
    with ExitStack() as opened:

        def start(name: str, place: str, **options: Any) -> PushConsumer:
            app = App(place)

            @app.handler(TOPIC, group=GROUP, **options)
            def handle(message: ReceivedMessage) -> None:
                with writing:
                    handled.append((name, message.queue.queue_id, message.queue_offset))

            consumer = PushConsumer(place, app.handlers)
            opened.callback(consumer.close)
            consumer.start()
            return consumer

        yield start


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}, but not within {LONGEST_S} s"
        time.sleep(0.005)


def send(place: str, count: int) -> None:
    with Producer(place) as producer:
        for number in range(count):
            producer.send(Message(TOPIC, b"%d" % number))


def held(consumer: PushConsumer) -> set[int]:
    return {queue.queue_id for queues in consumer.queues.values() for queue in queues}


@pytest.mark.parametrize("order", [None, "queue"])
def test_a_group_of_both_handles_each_message_once_while_members_come_and_go(
    server: Server, member: Start, handled: Handled, order: str | None
) -> None:
    remote = member("remote", server.url, order=order)
    wait_for(lambda: held(remote) == {0, 1, 2, 3}, "the remote member has every queue")
    send(server.url, 200)
    local = member("local", str(server.root), order=order)
    wait_for(lambda: len(held(local)) == 2 and held(remote) == {0, 1, 2, 3} - held(local), "each has its share")
    send(str(server.root), 200)
    wait_for(lambda: len(handled) >= 400, "everything is handled")
    remote.close()
    wait_for(lambda: held(local) == {0, 1, 2, 3}, "the worker has every queue")
    again = member("again", server.url, order=order)
    wait_for(lambda: len(held(again)) == 2, "a new remote member has its share")
    local.close()
    wait_for(lambda: held(again) == {0, 1, 2, 3}, "the remote member has every queue")
    send(server.url, 200)
    wait_for(lambda: len(handled) >= 600, "everything is handled")
    again.close()
    assert set(Counter(each[1:] for each in handled).values()) == {1}


def test_a_seek_on_the_command_line_moves_a_remote_member(server: Server, member: Start, handled: Handled) -> None:
    remote = member("remote", server.url)
    send(server.url, 40)
    wait_for(lambda: len(handled) == 40, "everything is handled")
    with Admin(server.root) as admin:
        wait_for(lambda: all(lag.lag == 0 for lag in admin.lag(GROUP)), "it is committed")
        admin.seek(GROUP, TOPIC, "earliest")
    wait_for(lambda: len(handled) == 80, "everything comes again")
    assert held(remote) == {0, 1, 2, 3}


def test_members_go_on_after_the_server_was_killed(server: Server, member: Start, handled: Handled) -> None:
    remote, local = member("remote", server.url), member("local", str(server.root))
    wait_for(lambda: len(held(local)) == 2 and held(remote) == {0, 1, 2, 3} - held(local), "each has its share")
    server.kill()
    wait_for(lambda: held(local) == {0, 1, 2, 3}, "the worker has every queue")
    send(str(server.root), 100)
    wait_for(lambda: len(handled) == 100, "everything is handled")
    server.start()
    wait_for(lambda: len(held(local)) == 2, "the remote member is back")
    send(str(server.root), 100)
    wait_for(lambda: len({place[1:] for place in handled}) == 200, "everything is handled")
