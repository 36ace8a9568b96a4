"""House: a broker's rooms over a real store, and clients that ask it over connections that tests can end."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqclient import Message, Producer
from rmqclient.broker.address import Address
from rmqclient.broker.broker import Broker
from rmqclient.broker.groups.room import GroupsRoom
from rmqclient.broker.request import Request
from rmqclient.broker.settings import ServeSettings
from rmqclient.remoting.bodies import (
    ConsumeFrom,
    ConsumerData,
    ConsumerIds,
    ConsumeType,
    Heartbeat,
    LockedQueues,
    LockRequest,
    MessageModel,
    Subscription,
)
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.store import MessageQueue, MessageStore, boottime, open_store
from rmqclient.store.runtime import awake, group_table, members, roll

GROUP = "billing"
TOPIC = "orders"
BROKER = "broker-a"
LONGEST_S = 15.0

_ports = itertools.count(40_000)


class Client:
    """A client, with one connection: it is its own peer."""

    def __init__(self, house: House, client_id: str, host: str = "10.0.0.9") -> None:
        self.house = house
        self.client_id = client_id
        self.remote = Address(host, next(_ports))
        self.local = Address("127.0.0.1", 9876)
        self.is_open = True
        self.sent: list[Frame] = []
        self._closed: list[Callable[[], None]] = []

    def send(self, frame: Frame) -> None:
        """Keep what the broker sends."""
        self.sent.append(frame)

    def call(self, request: Frame, timeout_s: float, done: Callable[[Frame | None], None]) -> None:
        """Answer nothing."""
        del timeout_s
        self.sent.append(request)
        done(None)

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call back at :meth:`close`."""
        self._closed.append(callback)

    def close(self) -> None:
        """End the connection, as a kill does."""
        self.is_open = False
        for callback in self._closed:
            callback()

    @property
    def notices(self) -> int:
        """How often the client was told that members have changed."""
        return len([frame for frame in self.sent if frame.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED])

    def ask(self, code: RequestCode, body: bytes = b"", **fields: Any) -> Frame:
        """Return the answer to a request."""
        return self.house.ask(self, request(code, body, **fields))

    def beat(self, *topics: str | Subscription, group: str = GROUP, retries: bool = True, **data: Any) -> Frame:
        """Be a member of a group, by default as a push consumer that shares queues."""
        subscriptions = [each if isinstance(each, Subscription) else Subscription(each) for each in topics or [TOPIC]]
        if retries:
            subscriptions.append(Subscription(f"%RETRY%{group}"))
        data.setdefault("consume_from", ConsumeFrom.CONSUME_FROM_FIRST_OFFSET)
        consumer = ConsumerData(group, subscriptions=tuple(subscriptions), **data)
        return self.ask(RequestCode.HEART_BEAT, Heartbeat(self.client_id, consumers=(consumer,)).encode())

    def beat_as_puller(self) -> Frame:
        """Be a pull consumer."""
        return self.beat(retries=False, consume_type=ConsumeType.CONSUME_ACTIVELY)

    def beat_as_broadcast(self) -> Frame:
        """Be a broadcast consumer."""
        return self.beat(retries=False, message_model=MessageModel.BROADCASTING)

    def leave(self, group: str = GROUP) -> Frame:
        """Leave a group in order."""
        return self.ask(RequestCode.UNREGISTER_CLIENT, clientID=self.client_id, consumerGroup=group)

    def members(self, group: str = GROUP) -> tuple[str, ...]:
        """Return the client ids of a group."""
        answer = self.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
        return ConsumerIds.decode(answer.body).ids if answer.code == 0 else ()

    def pull(self, queue_id: int, offset: int = 0, topic: str = TOPIC) -> Request:
        """Return a new pull."""
        frame = request(
            RequestCode.PULL_MESSAGE, consumerGroup=GROUP, topic=topic, queueId=queue_id, queueOffset=offset,
            maxMsgNums=32, sysFlag=2, commitOffset=0, suspendTimeoutMillis=15_000, subVersion=0,
        )  # fmt: skip
        return Request(frame, self)

    def may_pull(self, queue_id: int, offset: int = 0) -> bool:
        """Tell whether a new pull is fed."""
        queue = MessageQueue(TOPIC, queue_id)
        return self.house.groups.leases.read_from(self.pull(queue_id, offset), GROUP, queue) is not None

    def commit(self, queue_id: int, offset: int, topic: str = TOPIC) -> int:
        """Commit an offset; return the code of the answer."""
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        return self.ask(code, consumerGroup=GROUP, topic=topic, queueId=queue_id, commitOffset=offset).code

    def offset(self, queue_id: int, topic: str = TOPIC) -> int | None:
        """Return where the group goes on; None when the client is to decide."""
        answer = self.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, topic=topic, queueId=queue_id)
        return int(answer.fields["offset"]) if answer.code == 0 else None

    def lock(self, *queue_ids: int, group: str = GROUP) -> set[int]:
        """Lock queues; return those that are locked now."""
        answer = self.ask(RequestCode.LOCK_BATCH_MQ, _lock(self.client_id, queue_ids, group))
        return {queue.queue_id for queue in LockedQueues.decode(answer.body).queues}

    def unlock(self, *queue_ids: int, client_id: str | None = None) -> None:
        """Unlock queues."""
        self.ask(RequestCode.UNLOCK_BATCH_MQ, _lock(client_id or self.client_id, queue_ids))


class House:
    """A broker over a store, on an event loop that runs while a request is answered."""

    def __init__(self, root: Path, store: MessageStore, **settings: Any) -> None:
        self.root = root
        self.store = store
        self.loop = asyncio.new_event_loop()
        self.broker = Broker(store, ServeSettings(root, **settings))
        self.groups: GroupsRoom = self.broker.groups

    def client(self, client_id: str, host: str = "10.0.0.9") -> Client:
        """Return a client that has not said anything yet."""
        return Client(self, client_id, host)

    def member(self, client_id: str, *topics: str | Subscription, **data: Any) -> Client:
        """Return a client that is a member of the group."""
        client = self.client(client_id)
        assert client.beat(*topics, **data).code == 0
        return client

    def ask(self, client: Client, frame: Frame) -> Frame:
        """Return the answer to a request."""
        return self.loop.run_until_complete(self._answer(client, frame))

    def look(self) -> None:
        """Let what the store's bells have said be heard, and look."""
        self.loop.run_until_complete(asyncio.sleep(0))
        self.groups.look()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Look again and again until something is so."""
        deadline = time.monotonic() + LONGEST_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}, but not within {LONGEST_S} s"
            self.loop.run_until_complete(asyncio.sleep(0.01))
            self.look()

    def fill(self, count: int = 0, queues: int = 4) -> None:
        """Make the topic, and send messages, as many to each queue."""
        self.store.topics.create(TOPIC, queues)
        with Producer(self.root) as producer:
            for number in range(count):
                producer.send(Message(topic=TOPIC, body=b"%d" % number))

    def committed(self, queue_id: int, group: str = GROUP) -> int | None:
        """Return what the store has as the offset of a group; None when it has none."""
        slot = self.store.groups.find(group, self.store.topics.slot(MessageQueue(TOPIC, queue_id)))
        return None if slot is None else slot.committed_offset

    async def _answer(self, client: Client, frame: Frame) -> Frame:
        answer = self.broker.answer(Request(frame, client))
        deadline = time.monotonic() + LONGEST_S
        while answer is None:
            assert time.monotonic() < deadline, f"request {frame.code} was not answered"
            await asyncio.sleep(0.001)
            answers = [each for each in client.sent if each.is_response]
            if answers:
                answer = answers[-1]
                client.sent.remove(answer)
        return answer


def stand_still(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process have stood still until now for so long, by the clock since the boot."""
    for module in (awake, group_table, members, roll):
        monkeypatch.setattr(module, "boottime", lambda: boottime() + round(seconds * 1e9))


@contextmanager
def house_of(root: Path, **settings: Any) -> Iterator[House]:
    """Open a store, and serve it."""
    with open_store(root) as store:
        house = House(root, store, **settings)
        try:
            yield house
        finally:
            house.broker.close()
            house.loop.close()


def _lock(client_id: str, queue_ids: tuple[int, ...], group: str = GROUP) -> bytes:
    return LockRequest(group, client_id, tuple(MessageQueue(TOPIC, each, BROKER) for each in queue_ids)).encode()
