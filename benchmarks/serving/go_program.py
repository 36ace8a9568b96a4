"""Go's program: the benchmark that RocketMQ's Go client brings along, against ``rmq serve`` and RocketMQ's brokers.

It is built by the name of its module. It sends until it is told to end, and tells the rate of the last ten seconds.
Several producers are as many processes: of those in one process only the first starts, because all have one group.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Benchmark, Samples, Size, Unit, at_least, at_most, scratch
from benchmarks.serving.servers import SERVE, Running, processor_name, running
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, TOP, why_not

MODULE = "github.com/apache/rocketmq-client-go/v2/benchmark"
_GO = TOP / "tests" / "interop" / "clients" / "go"
_TOLD = re.compile(r"Benchmark Producer Snapshot.*?sendTps=(\d+).*?total=(\d+)")
_END_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Of the program, and the number of turns."""

    repetitions: int
    sending_s: float
    producers: tuple[int, ...] = (1, 8)
    body_bytes: int = 100
    brokers: tuple[str, ...] = (BROKER_4_9_7, BROKER_5_3_3)


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure every server once in each turn."""
    if why := why_not(*parameters.brokers) or ("" if shutil.which("go") else "there is no Go"):
        samples.note(f"Not measured: {why}.")
        return
    samples.note(
        f"`{MODULE}` sends bodies of {parameters.body_bytes} B for {parameters.sending_s:g} s, each producer in a "
        "process of its own on the machine of the server. The rate is that of its last ten seconds. Its latencies are "
        "whole milliseconds, which say nothing here."
    )
    with scratch(directory) as built:
        program = built / "benchmark"
        subprocess.run(["go", "build", "-o", str(program), MODULE], cwd=_GO, check=True)
        for _ in range(parameters.repetitions):
            for server in (SERVE, *parameters.brokers):
                with scratch(directory) as home, running(server, home) as found:
                    for producers in parameters.producers:
                        _measure(parameters, server, found, program, producers, samples)
    for broker in parameters.brokers:
        for case in map(_case, parameters.producers):
            name = f"rmq serve to {broker}"
            samples.add_ratio(name, case, (SERVE, case), (broker, case), at_least(1.0))
            used = processor_name(case)
            samples.add_ratio(name, used, (SERVE, used), (broker, used), at_most(1 / 3))


def _measure(
    parameters: Parameters, server: str, found: Running, program: Path, producers: int, samples: Samples
) -> None:
    options = ["-t", "Sent", "-g", "benchmark", "-n", found.address, "-s", str(parameters.body_bytes)]
    before = found.processor_s
    logs = [program.with_name(f"log-{number}") for number in range(producers)]
    with ExitStack() as stack:
        processes = [stack.enter_context(_started([str(program), "producer", *options], log)) for log in logs]
        time.sleep(parameters.sending_s)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(_END_S)
    told = [_told(log.read_text(encoding="utf-8", errors="replace")) for log in logs]

    def add(case: str, unit: Unit, value: float) -> None:
        samples.add(server, case, unit, value)
        print(f"{server}, {case}: {value:,.2f} {unit}", file=sys.stderr)

    add(_case(producers), "/s", sum(rate for rate, _ in told))
    used_s = found.processor_s - before
    add(processor_name(_case(producers)), "µs", used_s / sum(total for _, total in told) * 1e6)


@contextmanager
def _started(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.kill()


def _told(log: str) -> tuple[int, int]:
    """Return the last rate, and how many messages were sent. Raises RuntimeError when nothing was."""
    found = _TOLD.findall(log)
    if not found or found[-1][1] == "0":
        raise RuntimeError(f"the program sent nothing: {log[-1000:]}")
    rate, total = map(int, found[-1])
    return rate, total


def _case(producers: int) -> str:
    return f"producers: {producers}"


BENCHMARK = Benchmark(
    name="serve-go",
    title="As a server, by the benchmark of RocketMQ's Go client",
    parameters={
        Size.FULL: Parameters(repetitions=3, sending_s=22.0),
        Size.QUICK: Parameters(repetitions=1, sending_s=12.0),
        Size.SMALLEST: Parameters(repetitions=1, sending_s=12.0, producers=(1,), brokers=()),
    },
    run=run,
)
