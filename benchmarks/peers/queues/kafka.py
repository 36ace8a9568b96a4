"""Kafka: one broker with its default settings, and confluent-kafka, which is librdkafka under Python."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import Enough, Handle, Level, Peer, Promise, Running

_PARTITIONS = 4
_AT_ONCE = 500
_WAIT_S = 0.05
_FLUSH_S = 60.0


class Kafka(Peer):
    """One topic of four partitions for each topic."""

    packages: ClassVar[tuple[str, ...]] = ("confluent-kafka==2.16.1",)
    orders_keys: ClassVar[bool] = True
    name = "kafka"
    title = "Kafka, one broker"
    promise = Promise(Level.HOST, "when the kernel likes")
    ways = (
        "confluent-kafka, acks=all; many: produced without waiting, lingering 5 ms, all answered at the end; consumes: "
        "500 at once, then a commit that is not waited for"
    )

    def missing(self) -> str:
        """Return whether there is no Maven, which fetches it."""
        return "" if shutil.which("mvn") else "there is no Maven (mvn), which fetches the broker"

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Start a broker."""
        from benchmarks.spark.kafka import broker, fetch_broker

        jars = fetch_broker(home)
        with broker(home, jars, _PARTITIONS) as kafka:
            yield Running(kafka.servers, (kafka.pid,), kafka.files, kafka.begun_ns)

    @contextmanager
    def session(self, address: str, topic: str, *, ordered: bool = False) -> Iterator[Log]:
        """Make a producer."""
        del ordered  # it always is
        log = Log(address, topic)
        try:
            yield log
        finally:
            log.settle()


class Log:
    """A session."""

    def __init__(self, address: str, topic: str) -> None:
        import confluent_kafka

        self._library = confluent_kafka
        self._address = address
        self._topic = topic
        self._producer: Any = None
        self._lingers = -1
        self._make_topic()

    def send(self, body: bytes, key: str = "") -> None:
        """Produce one message, and wait for the answer."""
        self._producing(0).produce(self._topic, body, key=key or None)
        self.settle()

    def send_many(self, bodies: Sequence[bytes]) -> None:
        """Produce messages without waiting, unless too many wait already."""
        producer = self._producing(5)
        for body in bodies:
            while True:
                try:
                    producer.produce(self._topic, body)
                except BufferError:
                    producer.poll(0.01)
                else:
                    break
        producer.poll(0)

    def settle(self) -> None:
        """Wait for all answers. Raises TimeoutError."""
        if self._producer is not None and self._producer.flush(_FLUSH_S):
            raise TimeoutError(f"Kafka did not answer within {_FLUSH_S:.0f} s")

    def consume(self, handle: Handle, enough: Enough) -> None:
        """Take what there is, and commit."""
        settings = {
            "bootstrap.servers": self._address,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = self._library.Consumer(settings)
        consumer.subscribe([self._topic])
        try:
            while not enough():
                messages = [message for message in consumer.consume(_AT_ONCE, _WAIT_S) if message.error() is None]
                for message in messages:
                    handle(message.value())
                if messages:
                    consumer.commit(asynchronous=True)
        finally:
            consumer.close()

    def _producing(self, linger_ms: int) -> Any:
        """Return a producer that waits so long for more: its users choose between soon and many."""
        if self._lingers != linger_ms:
            self.settle()
            settings = {"bootstrap.servers": self._address, "acks": "all", "linger.ms": linger_ms}
            self._producer = self._library.Producer(settings)
            self._lingers = linger_ms
        return self._producer

    def _make_topic(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self._address})
        for made in admin.create_topics([NewTopic(self._topic, _PARTITIONS, 1)]).values():
            error = made.exception()
            exists = self._library.KafkaError.TOPIC_ALREADY_EXISTS
            if error is not None and error.args[0].code() != exists:
                raise error
