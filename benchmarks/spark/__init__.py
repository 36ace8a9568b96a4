"""Spark: rows a second from a store and into one, beside Parquet, JSON lines, Kafka and a source that yields tuples.

All of them hold the same messages, are read in turn by one session with two cores, and must give the same result.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import Child, alone
from benchmarks.measure import Benchmark, Samples, Size, at_least, at_most, in_bytes, scratch
from benchmarks.spark import scans as spark_scans
from benchmarks.spark import stream as spark_stream
from benchmarks.spark.kafka import Jars, KafkaUnavailable, broker, fetch
from benchmarks.spark.rows import CLUSTER, JSON, KAFKA, PARQUET, QUEUES, STORE, TUNED_KAFKA, TUNING, TUPLES
from benchmarks.spark.scans import AGGREGATE, ARCHIVE, BODILESS, PROJECTED, SCAN, WRITE, figure
from rmqclient.errors import SparkUnavailable
from rmqclient.spark.java import java_home
from tests.interop.cluster.clusters import Cluster, started_cluster
from tests.interop.rocketmq import BROKER_5_3_3, FAST_JVM, why_not

TARGETS = {
    (SCAN, PARQUET): at_least(0.5),
    (SCAN, JSON): at_least(2.5),
    (SCAN, TUPLES): at_least(7.0),
    (SCAN, KAFKA): at_least(1.0),
    (SCAN, TUNED_KAFKA): at_least(1.0),
    (AGGREGATE, PARQUET): at_least(0.4),
    (AGGREGATE, JSON): at_least(2.5),
    (AGGREGATE, TUPLES): at_least(7.0),
    (AGGREGATE, KAFKA): at_least(1.0),
    (AGGREGATE, TUNED_KAFKA): at_least(1.0),
    (PROJECTED, PARQUET): at_least(0.5),
    (BODILESS, PARQUET): None,
    (ARCHIVE, PARQUET): at_least(0.95),
}
"""The forms with which the store is compared, and the targets of the ratios."""

BESIDE_KAFKA = {
    (SCAN, KAFKA): at_least(1.0),
    (SCAN, TUNED_KAFKA): None,
    (AGGREGATE, KAFKA): at_least(1.0),
    (AGGREGATE, TUNED_KAFKA): None,
}
"""What a RocketMQ cluster is compared with, and the targets of the ratios."""

BROKER_FILES = "mappedFileSizeCommitLog=1073741824"
"""A gibibyte, as by default; those of tests are smaller."""

WRITTEN = {100: at_least(1e6)}
"""Rows a second, by the bytes of a body."""

SOON = at_most(250.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of messages, and of turns."""

    repetitions: int
    messages: int
    tuples: int
    """Messages that are read as tuples, which is slow."""
    batches: int
    """How many of each streaming query are counted."""
    tasks: int = 256
    messages_a_second: int = 10_000
    body_bytes: tuple[int, ...] = (100, 1024)
    kafka: bool = True
    cluster: bool = True


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure scans and writes with each size of bodies, and then streams and tasks, each in a session of its own."""
    try:
        java_home()
    except SparkUnavailable as error:
        samples.note(f"Not measured: {error}.")
        return
    jars = _jars(parameters, directory, samples)
    _note(parameters, jars, samples)
    for body_bytes in parameters.body_bytes:
        _measure_scans(parameters, jars, body_bytes, directory, samples)
    _measure_streams(parameters, directory, samples)


def _measure_scans(
    parameters: Parameters, jars: Jars | None, body_bytes: int, directory: Path, samples: Samples
) -> None:
    case = in_bytes(body_bytes)
    with (
        scratch(directory) as path,
        broker(path, jars, QUEUES) if jars else nullcontext() as kafka,
        _cluster(parameters, path) as servers,
    ):
        job = spark_scans.Job(
            messages=parameters.messages,
            tuples=parameters.tuples,
            body_bytes=body_bytes,
            rounds=parameters.repetitions,
            kafka=kafka,
            cluster=spark_scans.Cluster(servers.url, servers.brokers[0].root) if servers else None,
        )
        taken = alone(Child(spark_scans.measure, path, job))
    for name, rate in taken:
        samples.add(name, case, "/s", rate, WRITTEN.get(body_bytes) if name == figure(WRITE, STORE) else None)
    names = {name for name, _ in taken}
    for (what, peer), target in TARGETS.items():
        if figure(what, peer) in names:
            store = (figure(what, STORE), case)
            samples.add_ratio(f"{what}, store to {peer}", case, store, (figure(what, peer), case), target)
    for (what, peer), target in BESIDE_KAFKA.items():
        if {figure(what, peer), figure(what, CLUSTER)} <= names:
            cluster = (figure(what, CLUSTER), case)
            samples.add_ratio(f"{what}, cluster to {peer}", case, cluster, (figure(what, peer), case), target)


def _measure_streams(parameters: Parameters, directory: Path, samples: Samples) -> None:
    case, per_second = in_bytes(100), parameters.messages_a_second
    with scratch(directory) as path:
        job = spark_stream.Job(
            rounds=parameters.repetitions, batches=parameters.batches, rate=per_second, tasks=parameters.tasks
        )
        measured = alone(Child(spark_stream.measure, path, job))
        for batches in measured.batches:
            name = f"micro-batch of {per_second:,} messages a second, {batches.sink}"
            samples.add(f"{name}, median", case, "ms", batches.median_ms, SOON)
            samples.add(f"{name}, p95", case, "ms", batches.p95_ms)
        for task in measured.tasks:
            samples.add(f"one task more, {task.source}", case, "ms", task.ms)


def _jars(parameters: Parameters, directory: Path, samples: Samples) -> Jars | None:
    """Return the jars of Kafka; None if it is unavailable, with a note of the reason."""
    if not parameters.kafka:
        return None
    try:
        with scratch(directory) as path:
            return fetch(path)
    except KafkaUnavailable as error:
        samples.note(f"Not measured, {KAFKA}: {error}.")
        return None


def _cluster(parameters: Parameters, directory: Path) -> AbstractContextManager[Cluster | None]:
    if not parameters.cluster or why_not(BROKER_5_3_3):
        return nullcontext()
    return started_cluster(BROKER_5_3_3, directory / "rocketmq", masters=1, settings=BROKER_FILES, jvm=FAST_JVM)


def _note(parameters: Parameters, jars: Jars | None, samples: Samples) -> None:
    samples.note(
        "One session of rmqclient.spark for each size of bodies and one for the streams, all with local[2]. The topic "
        f"has {QUEUES} queues whose messages stand in turns, with a key, one of ten tags, and as body a JSON document "
        "that hardly compresses. A round with few messages comes first and is not counted. Before each form is read "
        "its files are read once, from first to last, so that all come from memory; making the DataFrame is part of "
        "the time."
    )
    samples.note(
        "A scan goes to the sink that drops everything. The aggregate groups by queue and tag: number of messages, "
        "bytes of bodies, highest offset, first and last time. All gave the same result. Where its columns are asked "
        "for, a schema with only those was handed to the reader: Spark tells a Python source nothing else of what it "
        "needs, while it tells Parquet and JSON lines in any case."
    )
    samples.note(
        f"{PARQUET} and {JSON} are as Spark writes them by default; a body is binary in Parquet and text in JSON. "
        f"{TUPLES[0].upper()}{TUPLES[1:]} reads the same store, {parameters.tuples:,} of its messages."
    )
    if jars is not None:
        samples.note(
            "Kafka is a broker of one node on loopback, in its own process. Its messages were written by Spark from "
            "the same Parquet; they have no tags, so its aggregate groups by partition alone. Tuned for long reads: "
            f"{', '.join(f'{name}={value}' for name, value in TUNING.items())}."
        )
    if parameters.cluster:
        reason = why_not(BROKER_5_3_3)
        samples.note(
            f"Not measured, {CLUSTER}: {reason}."
            if reason
            else f"{CLUSTER[0].upper()}{CLUSTER[1:]} is a name server and a broker, {BROKER_5_3_3}, on loopback, with "
            "default settings for what it stores and reads. Its messages were written by Spark from the same Parquet. "
            "Its aggregate groups by partition alone, as Kafka's does."
        )
    samples.note(
        "Micro-batches follow one another at once, without an interval. Their time is triggerExecution of a query's "
        "progress; the first batches of a query are not counted. What one task more costs is the time of "
        f"{parameters.tasks} tasks less that of {QUEUES} over a few messages, by task and core."
    )


BENCHMARK = Benchmark(
    name="spark",
    title="Spark",
    parameters={
        Size.FULL: Parameters(repetitions=3, messages=5_000_000, tuples=500_000, batches=60),
        Size.QUICK: Parameters(repetitions=2, messages=300_000, tuples=100_000, batches=20),
        Size.SMALLEST: Parameters(
            repetitions=1, messages=200, tuples=80, batches=2, tasks=16, body_bytes=(100,), kafka=False, cluster=False
        ),
    },
    run=run,
)
