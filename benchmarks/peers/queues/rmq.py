"""Ours, as rows of their own: the local path, ``rmq serve`` with our client, and our client on a broker of RocketMQ."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.peer import Enough, Handle, Level, Peer, Promise, Running
from benchmarks.peers.queues.rocketmq import PROMISE, one_master
from rmqclient import App, Durability, Message, Producer, ReceivedMessage, StoreConfig
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.testing import serve
from tests.interop.rocketmq import why_not

_QUEUES = 4
_GROUP = "readers"
_LOOK_S = 0.02
"""Each look wakes a thread of the process that is measured."""
_DRAIN_S = 30.0
_QUEUE_ENTRY_BYTES = 20
_LEVEL_1_S = 1.0


class Rmq(Peer):
    """Our client; ``address`` is what an application is given, a directory or a URL."""

    ours: ClassVar[bool] = True
    delays: ClassVar[bool] = True
    orders_keys: ClassVar[bool] = True
    ways = "many: send_batch of 100; consumes: a handler, each message acknowledged"
    config: StoreConfig | None = None

    def missing(self) -> str:
        """Return nothing."""
        return ""

    @contextmanager
    def session(self, address: str, topic: str, *, ordered: bool = False) -> Iterator[Client]:
        """Make a producer, and the topic."""
        with Producer(address, config=self.config) as producer:
            producer.create_topic(topic, _QUEUES)
            yield Client(producer, address, topic, ordered=ordered)


class Local(Rmq):
    """Processes that share a directory."""

    def __init__(self, *, sync: bool) -> None:
        self.name = "rmq-sync" if sync else "rmq"
        self.title = "rmq, local, SYNC" if sync else "rmq, local"
        self.promise = (
            Promise(Level.DISK, "before each answer, shared by those who wait")
            if sync
            else Promise(Level.HOST, "twice a second")
        )
        self.config = StoreConfig(durability=Durability.SYNC) if sync else None

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Name the directory."""
        yield Running(str(home / "store"), files=home / "store")

    def stored_bytes(self, running: Running) -> int:
        """Return the bytes of log and queues."""
        return _used_bytes(running.address, self.config)


class Serve(Rmq):
    """``rmq serve``, with our client."""

    name = "rmq-serve"
    title = "rmq serve"
    promise = Promise(Level.HOST, "twice a second")

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Start it."""
        with serve(home / "store") as server:
            yield Running(server.url, (server.pid,), home / "store")

    def stored_bytes(self, running: Running) -> int:
        """Return the bytes of log and queues."""
        return _used_bytes(running.address)


class Cluster(Rmq):
    """Our client on one broker of RocketMQ."""

    def __init__(self, release: str) -> None:
        self.name = f"rmq-on-{release}"
        self.title = f"rmq's client on RocketMQ {release.removeprefix('broker-')}"
        self.promise = PROMISE
        self.release = release

    def missing(self) -> str:
        """Return what RocketMQ lacks."""
        return why_not(self.release)

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Start a name server and one master."""
        with one_master(self.release, home) as (cluster, pids):
            yield Running(cluster.url, pids, cluster.brokers[0].root)


class Client:
    """A session."""

    def __init__(self, producer: Producer, address: str, topic: str, *, ordered: bool) -> None:
        self._producer = producer
        self._address = address
        self._topic = topic
        self._ordered = ordered
        self._by_levels = address.startswith("rocketmq://")

    def send(self, body: bytes, key: str = "") -> None:
        """Send one message; a key is its sharding key, too."""
        if key:
            self._producer.send(Message(self._topic, body, keys=(key,)), key)
        else:
            self._producer.send(Message(self._topic, body))

    def send_many(self, bodies: Sequence[bytes]) -> None:
        """Send one batch."""
        self._producer.send_batch([Message(self._topic, body) for body in bodies])

    def send_later(self, body: bytes, delay_s: float) -> None:
        """Send one delayed message; over the network by level 1, a second: RocketMQ 4 knows no other delay."""
        if self._by_levels:
            assert delay_s == _LEVEL_1_S
            self._producer.send(Message(self._topic, body), delay_level=1)
        else:
            self._producer.send(Message(self._topic, body), delay=delay_s)

    def settle(self) -> None:
        """Do nothing: every send has returned."""

    def consume(self, handle: Handle, enough: Enough) -> None:
        """Run a handler in one thread."""
        app = App(self._address)

        def on_message(message: ReceivedMessage) -> None:
            handle(message.body)

        app.handler(self._topic, group=_GROUP, order="key" if self._ordered else None)(on_message)
        consumer = PushConsumer(self._address, app.handlers)
        consumer.start()
        while not enough():
            time.sleep(_LOOK_S)
        consumer.stop_taking()
        consumer.drain(_DRAIN_S)
        consumer.close()


def _used_bytes(address: str, config: StoreConfig | None = None) -> int:
    """Return where the log and the queues end: the files behind that are reserved ahead, in full."""
    with Producer(address, config=config) as producer, Admin(address) as admin:
        end = producer.send(Message("end", b"")).commit_log_offset
        return end + _QUEUE_ENTRY_BYTES * sum(topic.messages for topic in admin.topics())
