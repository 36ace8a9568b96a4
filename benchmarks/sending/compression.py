"""Compression: the flights that left New York in 2013, sent one by one, in batches, and in compressed batches.

Measures their bytes on disk, how fast one process sends them, and how fast another one handles them. Compared with
Kafka with the same bodies and compression, if it is available, measured by its own tools.
"""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.child import Begin, Child, alone
from benchmarks.measure import WARMED, Benchmark, Samples, Size, Span, rate, scratch
from benchmarks.spark.kafka import Jars, Kafka, KafkaUnavailable, broker, fetch_tools, tool
from benchmarks.traffic import watch
from examples.flights import dataset
from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import SparkUnavailable
from rmqclient.spark.java import java_home
from rmqclient.store import layout, open_store
from rmqclient.store.bodies import Compression

TOPIC = "flights"
QUEUES = 4
NAMES: dict[str, Compression | None] = {
    "not compressed": None,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
    "zlib": Compression.ZLIB,
}
KAFKA_NAMES = {"not compressed": "none", "lz4": "lz4", "zstd": "zstd", "zlib": "gzip"}
ONE_BY_ONE = "one by one"
STORED, SENT, HANDLED = "on the disk, a message", "sent", "handled"

_LONGEST_STALL_S = 30.0
_KAFKA_RECORD_BYTES = 8
"""Bytes that Kafka adds to a body in a batch, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Number of messages and of turns."""

    repetitions: int
    messages: int
    in_a_batch: tuple[int, ...] = (100, 500)
    kafka: bool = True


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of a send."""

    span: Span
    stored_bytes: int
    """Bytes of records and consume queue entries."""


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn."""
    jars = _jars(parameters, directory, samples)
    _note(parameters, samples)
    for _ in range(parameters.repetitions):
        _measure(parameters, directory, samples, ONE_BY_ONE, "", 1, None)
        for size in parameters.in_a_batch:
            for name, compression in NAMES.items():
                _measure(parameters, directory, samples, f"batches, {name}", _case(size), size, compression)
            for name in NAMES if jars else ():
                assert jars is not None
                _measure_kafka(parameters, directory, samples, jars, name, size)
    for size in parameters.in_a_batch:
        for name in NAMES:
            for what in (STORED, SENT, HANDLED):
                store, kafka = f"{what}, batches, {name}", f"{what}, Kafka, {name}"
                plain = (f"{what}, {ONE_BY_ONE}", "")
                samples.add_ratio(f"{store}, to one by one", _case(size), (store, _case(size)), plain)
                if jars:
                    samples.add_ratio(f"{store}, to Kafka", _case(size), (store, _case(size)), (kafka, _case(size)))


def bodies(count: int) -> Iterator[bytes]:
    """Yield random flights as JSON, chosen as Kafka's tool chooses its bodies."""
    flights = list(dataset.flights())
    chance = random.Random(0)
    encode = msgspec.json.Encoder().encode
    return (encode(chance.choice(flights)) for _ in range(count))


def send(begin: Begin, root: Path, messages: int, size: int, compression: Compression | None) -> Sent:
    """Send flights in batches of ``size`` to 4 queues in turn; each flight is made for its batch."""
    given = list(bodies(messages))
    with Producer(root) as producer:
        producer.create_topic(TOPIC, QUEUES)
        begin()
        end = 0
        begun_ns = time.monotonic_ns()
        if size == 1:
            for body in given:
                end = producer.send(Message(TOPIC, body)).commit_log_end
        else:
            for first in range(0, messages, size):
                batch = [Message(TOPIC, body) for body in given[first : first + size]]
                end = producer.send_batch(batch, compression=compression)[-1].commit_log_end
        ended_ns = time.monotonic_ns()
        with open_store(root) as store:
            entries = sum(store.topics.max_offset(queue) for queue in store.topics.queues(TOPIC))
    stored = end + entries * layout.CONSUME_QUEUE_ENTRY.size
    return Sent(Span(messages=messages, record_bytes=0, begun_ns=begun_ns, ended_ns=ended_ns), stored)


def handle(begin: Begin, root: Path, messages: int) -> Span:
    """Handle the messages with a handler that takes each body."""
    app = App(root)
    app.handler(TOPIC, group="readers")(take_body)
    with open_store(root) as store:
        consumer = PushConsumer(store, app.handlers)
        begin()
        consumer.start()
        span = watch(consumer, messages)
        consumer.stop_taking()
        consumer.drain(_LONGEST_STALL_S)
        consumer.close()
    return span


def take_body(message: ReceivedMessage) -> None:
    """Handle a message by taking its body."""
    _ = message.body


def _measure(
    parameters: Parameters,
    directory: Path,
    samples: Samples,
    name: str,
    case: str,
    size: int,
    compression: Compression | None,
) -> None:
    with scratch(directory, parameters.messages * 500) as root:
        sent = alone(Child(send, root, parameters.messages, size, compression))
        handled = alone(Child(handle, root, parameters.messages))
    samples.add(f"{STORED}, {name}", case, "B", sent.stored_bytes / parameters.messages)
    samples.add(f"{SENT}, {name}", case, "/s", rate(sent.span))
    samples.add(f"{HANDLED}, {name}", case, "/s", rate(handled))


def _measure_kafka(parameters: Parameters, directory: Path, samples: Samples, jars: Jars, name: str, size: int) -> None:
    with scratch(directory, parameters.messages * 500) as path, broker(path, jars, QUEUES) as kafka:
        payloads = path / "flights.json"
        payloads.write_bytes(b"\n".join(bodies(min(parameters.messages, dataset.FLIGHTS))))
        sent = _send_to_kafka(kafka, jars, payloads, parameters.messages, name, size)
        stored = sum(file.stat().st_size for file in kafka.files.glob(f"{TOPIC}-*/*.log"))
        handled = _take_from_kafka(kafka, jars, parameters.messages)
    samples.add(f"{STORED}, Kafka, {name}", _case(size), "B", stored / parameters.messages)
    samples.add(f"{SENT}, Kafka, {name}", _case(size), "/s", sent)
    samples.add(f"{HANDLED}, Kafka, {name}", _case(size), "/s", handled)


def _send_to_kafka(kafka: Kafka, jars: Jars, payloads: Path, messages: int, name: str, size: int) -> float:
    """Return messages a second, as kafka-producer-perf-test says."""
    a_body = payloads.stat().st_size / min(messages, dataset.FLIGHTS)
    properties = {
        "bootstrap.servers": kafka.servers,
        "acks": "1",
        "compression.type": KAFKA_NAMES[name],
        "batch.size": str(round(size * (a_body + _KAFKA_RECORD_BYTES))),
        "linger.ms": "50",
    }
    given = [f"{key}={value}" for key, value in properties.items()]
    options = ["--topic", TOPIC, "--num-records", str(messages), "--throughput", "-1", "--payload-file", str(payloads)]
    told = tool(jars, "org.apache.kafka.tools.ProducerPerformance", *options, "--producer-props", *given)
    found = re.findall(rf"^{messages} records sent, ([\d.]+) records/sec", told, re.MULTILINE)
    return float(found[-1])


def _take_from_kafka(kafka: Kafka, jars: Jars, messages: int) -> float:
    """Return messages a second, as kafka-consumer-perf-test says, without the time to join the group."""
    options = ["--bootstrap-server", kafka.servers, "--topic", TOPIC, "--messages", str(messages)]
    told = tool(jars, "org.apache.kafka.tools.ConsumerPerformance", *options, "--timeout", "60000")
    lines = [line.split(", ") for line in told.splitlines() if "fetch.nMsg.sec" in line or re.match(r"^\d{4}-", line)]
    header, values = lines[0], lines[-1]
    return float(values[header.index("fetch.nMsg.sec")])


def _jars(parameters: Parameters, directory: Path, samples: Samples) -> Jars | None:
    """Return the jars of Kafka; None if it is unavailable, with a note of the reason."""
    if not parameters.kafka:
        return None
    try:
        java_home()
        with scratch(directory) as path:
            return fetch_tools(path)
    except (KafkaUnavailable, SparkUnavailable, subprocess.TimeoutExpired) as error:
        samples.note(f"Not measured, Kafka: {error}.")
        return None


def _note(parameters: Parameters, samples: Samples) -> None:
    body_bytes = sum(map(len, bodies(parameters.messages))) / parameters.messages
    samples.note(WARMED)
    samples.note(
        f"{parameters.messages:,} flights as JSON, {body_bytes:.0f} bytes each, chosen at random, without keys and "
        f"tags, to {QUEUES} queues; one process sends, then one process with one thread takes the body of each and "
        "acknowledges it. On the disk are the records and their consume queue entries; of Kafka the log segments "
        "without their indexes."
    )
    samples.note(
        "Kafka is a broker of one node on loopback, in its own process, with acks=1 and linger.ms=50; its batch.size "
        "is that of so many messages. Its figures are those of its own tools, which choose bodies of a file at random, "
        "and its consumer does not acknowledge message by message. Kafka has gzip where the store has zlib, the same "
        "algorithm at another level: 6 there, 5 here; zstd is at 3, lz4 at 9 there and at 0 here."
    )


def _case(size: int) -> str:
    return f"{size} in a batch"


BENCHMARK = Benchmark(
    name="compression",
    title="Compressed batches",
    parameters={
        Size.FULL: Parameters(repetitions=3, messages=dataset.FLIGHTS),
        Size.QUICK: Parameters(repetitions=1, messages=100_000, in_a_batch=(100,)),
        Size.SMALLEST: Parameters(repetitions=1, messages=200, in_a_batch=(100,), kafka=False),
    },
    run=run,
)
