"""Peers: `rmq serve`, Redis Streams and NATS JetStream, each by its own Go client, in turns.

Each server is started anew in each turn, and keeps what it was sent in files that it flushes now and then: Redis with
``appendfsync everysec``, JetStream in file storage. RocketMQ's Go client is the one for `rmq serve`.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Benchmark, Samples, Size, Unit, scratch
from benchmarks.serving.servers import SERVE, Running, processor_name, running
from tests.interop.rocketmq import free_broker_port

PROGRAM = Path(__file__).with_name("clients")
REDIS, NATS = "Redis Streams", "NATS JetStream"
KINDS = {SERVE: "rocketmq", REDIS: "redis", NATS: "nats"}
_NEEDED = ("go", "redis-server", "nats-server")
_READY_S = 30.0
_WORK_S = 900.0
_WITH_WARM_UP = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of messages and of turns."""

    repetitions: int
    sent: int
    batched: int
    latency_s: int
    body_bytes: int = 100
    senders: int = 64
    batch: int = 100


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure every server once in each turn."""
    if missing := [command for command in _NEEDED if shutil.which(command) is None]:
        samples.note(f"Not measured: there is no {', no '.join(missing)}.")
        return
    samples.note(
        f"One Go program does the work, in a process of its own on the machine of the servers, by the clients of "
        f"each. Bodies have {parameters.body_bytes} B. What was sent one by one, by all senders and in "
        "batches is consumed, and acknowledged. Redis calls fdatasync every second, the others from time to time."
    )
    with scratch(directory) as built:
        program = built / "peers"
        subprocess.run(["go", "build", "-o", str(program), "."], cwd=PROGRAM, check=True)
        for _ in range(parameters.repetitions):
            for server in KINDS:
                with scratch(directory) as home, started(server, home) as found:
                    _measure(parameters, server, found, program, samples)


def _measure(parameters: Parameters, server: str, found: Running, program: Path, samples: Samples) -> None:
    size, messages = parameters.body_bytes, 0

    def add(case: str, unit: Unit, value: float) -> None:
        samples.add(server, case, unit, value)
        print(f"{server}, {case}: {value:,.2f} {unit}", file=sys.stderr)

    def asked(*arguments: object) -> dict[str, int]:
        command = [str(program), KINDS[server], found.address, *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=_WORK_S, check=True)
        line: dict[str, int] = json.loads(done.stdout)
        return line

    def work(case: str, warm_up: float, *arguments: object) -> int:
        before = found.processor_s
        line = asked(*arguments)
        done = int(line["messages"] * warm_up)
        add(case, "/s", line["messages"] / line["took_ns"] * 1e9)
        add(processor_name(case), "µs", (found.processor_s - before) / done * 1e6)
        return done

    add("start", "s", found.started_s)
    add("memory after the start", "MiB", found.memory_mib)
    messages += work("send one by one", _WITH_WARM_UP, "send", 1, parameters.sent, size)
    messages += work(f"{parameters.senders} senders", _WITH_WARM_UP, "send", parameters.senders, parameters.sent, size)
    batches = f"batches of {parameters.batch}"
    messages += work(batches, _WITH_WARM_UP, "batches", parameters.batch, parameters.batched, size)
    work("consume", 1.0, "consume", messages)
    line = asked("latency", 1000, parameters.latency_s, size)
    add("latency at 1,000/s, median", "ms", line["median_ns"] / 1e6)
    add("latency at 1,000/s, 99th percentile", "ms", line["p99_ns"] / 1e6)
    add("memory after the work", "MiB", found.memory_mib)


@contextmanager
def started(server: str, home: Path) -> Iterator[Running]:
    """Start one of :data:`KINDS` over an empty store in ``home``."""
    if server == SERVE:
        with running(SERVE, home) as found:
            yield found
        return
    port, begun = free_broker_port(), time.monotonic()
    with (home / "log").open("wb") as log, subprocess.Popen(_command(server, port, home), stdout=log, stderr=log) as of:
        try:
            _wait_for(port)
            yield Running(f"127.0.0.1:{port}", (of.pid,), time.monotonic() - begun)
        finally:
            of.kill()


def _command(server: str, port: int, home: Path) -> list[str]:
    if server == NATS:
        return ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(home)]
    kept = ["--dir", str(home), "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
    return ["redis-server", "--bind", "127.0.0.1", "--port", str(port), *kept]


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


BENCHMARK = Benchmark(
    name="serve-peers",
    title="As a server, beside Redis Streams and NATS JetStream",
    parameters={
        Size.FULL: Parameters(repetitions=3, sent=60_000, batched=400_000, latency_s=10),
        Size.QUICK: Parameters(repetitions=1, sent=20_000, batched=100_000, latency_s=5),
        Size.SMALLEST: Parameters(repetitions=1, sent=100, batched=500, latency_s=1, senders=4),
    },
    run=run,
)
