"""The room of pulls over a real store, with the simplest rules that members can have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from rmqclient.broker.address import Address
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.limits.counters import Counters
from rmqclient.broker.pulling.pulling import Pulling
from rmqclient.broker.request import Peer, Request
from rmqclient.broker.settings import ServeSettings
from rmqclient.broker.topics.topics import Topics
from rmqclient.remoting.bodies import Subscription
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import RequestCode, request
from rmqclient.store import Message, MessageQueue, MessageStore, StoreConfig, open_store
from tests.support.stores import GROUP, TOPIC, appender_of, body_of

PATIENCE_S = 20.0
QUEUE = MessageQueue(TOPIC, 0)
LOCAL = Address("10.1.2.3", 9876)


class Client:
    """The connection of a client: what was sent to it."""

    def __init__(self) -> None:
        self.remote = Address("10.1.2.9", 40_000)
        self.local = LOCAL
        self.is_open = True
        self.answers: asyncio.Queue[Frame] = asyncio.Queue()
        self._closed: list[Callable[[], None]] = []

    def send(self, frame: Frame) -> None:
        self.answers.put_nowait(frame)

    def call(self, request: Frame, timeout_s: float, done: Callable[[Frame | None], None]) -> None:
        raise NotImplementedError

    def when_closed(self, callback: Callable[[], None]) -> None:
        if self.is_open:
            self._closed.append(callback)
        else:
            callback()

    def close(self) -> None:
        self.is_open = False
        for callback in self._closed:
            callback()


class Rules:
    """Subscriptions and leases of a test."""

    def __init__(self) -> None:
        self.subscriptions = {TOPIC: Subscription(TOPIC)}
        self.is_lease_held = True
        self.committed: list[int] = []
        self.feeds_from = -(10**6)
        self.when_free: Callable[[str, MessageQueue], None] = lambda *_: None

    def subscription(self, group: str, topic: str) -> Subscription | None:
        del group
        return self.subscriptions.get(topic)

    def read_from(self, request: Request, group: str, queue: MessageQueue) -> int | None:
        del group, queue
        return max(self.feeds_from, int(request.fields["queueOffset"])) if self.is_lease_held else None

    def count_delivered(self, group: str, queue: MessageQueue, messages: int, size: int) -> None:
        """Count nothing."""

    def commit(self, peer: Peer, group: str, queue: MessageQueue, offset: int) -> str:
        del peer, group, queue
        self.committed.append(offset)
        return ""

    def free(self) -> None:
        """Let the client have its queue."""
        self.is_lease_held = True
        self.when_free(GROUP, QUEUE)


class PullRoom:
    """A store, the room that is tried, and one client of it."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.rules = Rules()
        self.groups = GroupSettings(store.root)
        self.topics = Topics(store, ServeSettings(store.root))
        rules = self.rules
        self.room = Pulling(
            store, self.topics, self.groups, rules, rules, rules.commit, counters=Counters(), most_held=1_000
        )
        rules.when_free = self.room.held.look_at
        self.appender = appender_of(store)
        self._opaques = count(1)

    def send(self, *tags: str | None, size: int = 60) -> None:
        """Store a message with each of these tags; its body is that of its queue offset."""
        for tag in tags:
            number = self.end
            self.appender.append(Message(TOPIC, body_of(number, size), tags=tag, properties={"n": str(number)}))

    @property
    def end(self) -> int:
        return self.store.topics.max_offset(QUEUE) if TOPIC in self.store.topics else 0

    def ask(self, client: Client, offset: int = 0, **fields: object) -> Frame | None:
        """Send a pull; return the answer if it comes at once."""
        whole: dict[str, Any] = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": 0,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 0,
            "commitOffset": 0,
            "suspendTimeoutMillis": 15_000,
            "subVersion": 0,
            **fields,
        }
        frame = request(RequestCode.PULL_MESSAGE, **whole)
        frame.opaque = next(self._opaques)
        asked = Request(frame, client)
        try:
            return self.room.pull(asked)
        except AnswerError as error:
            return asked.failure(error.code, error.remark or "")

    async def pull(self, offset: int = 0, client: Client | None = None, **fields: object) -> Frame:
        """Return the answer to a pull, whenever it comes."""
        client = client or Client()
        answer = self.ask(client, offset, **fields)
        return answer if answer is not None else await asyncio.wait_for(client.answers.get(), PATIENCE_S)

    def pull_now(self, offset: int = 0, **fields: object) -> Frame:
        """Return the answer to a pull that does not wait."""
        answer = self.ask(Client(), offset, **fields)
        assert answer is not None
        return answer


@contextmanager
def pull_room(root: Path, config: StoreConfig | None = None) -> Iterator[PullRoom]:
    """Open a new store with its one topic, and the room over it."""
    with open_store(root, config) as store:
        store.topics.create(TOPIC, 1)
        room = PullRoom(store)
        try:
            yield room
        finally:
            room.room.close()
