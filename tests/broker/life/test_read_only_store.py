"""A server that only reads a store that is not a replica: consumers of any group read, and leave no trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.remoting.bodies import ConsumeFrom, ConsumerData, Heartbeat, LockedQueues, LockRequest, Subscription
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.testing import Server, serve
from tests.support.cluster.caller import Caller, connected

TOPIC, GROUP, QUEUES, COUNT = "orders", "billing", 4, 20
LONGEST_S = 30.0
Start = Callable[[str], "Queue[bytes]"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with messages."""
    with open_store(tmp_path / "store") as opened:
        opened.topics.create(TOPIC, QUEUES)
        send(opened)
        yield opened


@pytest.fixture
def server(store: MessageStore) -> Iterator[Server]:
    with serve(store.root, "--read-only") as running:
        yield running


@pytest.fixture
def member() -> Iterator[Start]:
    """What starts a member of the group at a place, local or remote, and returns what it handles."""
    with ExitStack() as opened:

        def start(place: str) -> Queue[bytes]:
            app, handled = App(place), Queue[bytes]()

            @app.handler(TOPIC, group=GROUP, start="earliest")
            def handle(message: ReceivedMessage) -> None:
                handled.put(message.body)

            consumer = PushConsumer(place, app.handlers)
            opened.callback(consumer.close)
            consumer.start()
            return handled

        yield start


def send(store: MessageStore) -> None:
    with Producer(store.root) as producer:
        for number in range(COUNT):
            producer.send(Message(TOPIC, b"%d" % number))


def taken(handled: Queue[bytes]) -> set[bytes]:
    return {handled.get(timeout=LONGEST_S) for _ in range(COUNT)}


def ask(caller: Caller, frame: Frame) -> Frame:
    """Return the answer to a request; what the server asks meanwhile wants none."""
    answer = caller.ask(frame)
    while not answer.is_response:
        answer = caller.receive()
    return answer


def be_a_member(caller: Caller) -> Frame:
    subscriptions = (Subscription(TOPIC), Subscription(f"%RETRY%{GROUP}"))
    consumer = ConsumerData(GROUP, consume_from=ConsumeFrom.CONSUME_FROM_FIRST_OFFSET, subscriptions=subscriptions)
    return ask(caller, request(RequestCode.HEART_BEAT, Heartbeat("10.0.0.9@1", consumers=(consumer,)).encode()))


def pulled(caller: Caller, queue_id: int) -> Frame:
    fields: dict[str, Any] = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": queue_id,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 3,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subVersion": 0,
    }
    return ask(caller, request(RequestCode.PULL_MESSAGE, **fields))


def locks(caller: Caller, client_id: str) -> bool:
    asked = LockRequest(GROUP, client_id, (MessageQueue(TOPIC, 0, "broker-a"),))
    return bool(LockedQueues.decode(ask(caller, request(RequestCode.LOCK_BATCH_MQ, asked.encode())).body).queues)


def seats_and_offsets(store: MessageStore) -> tuple[list[str], list[str]]:
    seats = [seat.client_id for seat in store.members().roll.everybody(10_000)]
    return seats, [slot.group for slot in store.groups]


def test_a_push_consumer_of_a_new_group_gets_every_message(server: Server, member: Start) -> None:
    assert taken(member(server.url)) == {b"%d" % number for number in range(COUNT)}
    assert "Traceback" not in server.log


def test_members_that_only_read_leave_no_topic_seat_or_offset_behind(server: Server, store: MessageStore) -> None:
    with connected(server.address) as caller:
        assert be_a_member(caller).code == 0
        assert [pulled(caller, queue_id).code for queue_id in range(QUEUES)] == [0] * QUEUES
        assert [locks(caller, client_id) for client_id in ("10.0.0.9@1", "10.0.0.8@1")] == [True, False]
        commit: dict[str, Any] = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1}
        assert ask(caller, request(RequestCode.UPDATE_CONSUMER_OFFSET, **commit)).code == ResponseCode.NO_PERMISSION
        assert f"%RETRY%{GROUP}" not in store.topics
        assert seats_and_offsets(store) == ([], [])


def test_a_local_worker_keeps_its_queues_beside_members_that_only_read(
    server: Server, store: MessageStore, member: Start
) -> None:
    handled = member(str(store.root))
    taken(handled)
    with connected(server.address) as caller:
        assert be_a_member(caller).code == 0
        assert [pulled(caller, queue_id).code for queue_id in range(QUEUES)] == [0] * QUEUES
        send(store)
        assert taken(handled) == {b"%d" % number for number in range(COUNT)}
