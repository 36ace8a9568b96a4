"""Go's program: the benchmark that RocketMQ's Go client brings along, against ``rmq serve`` and RocketMQ's brokers.

It is built by the name of its module. It sends until it is told to end, and tells the rate of the last ten seconds.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Benchmark, Samples, Size, Unit, at_least, at_most, scratch
from benchmarks.serving.servers import SERVE, Running, processor_name, running
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, TOP, why_not

MODULE = "github.com/apache/rocketmq-client-go/v2/benchmark"
_GO = TOP / "tests" / "interop" / "clients" / "go"
_RATE = re.compile(r"Benchmark Producer Snapshot.*?sendTps=(\d+).*?total=(\d+)")
_END_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Of the program, and the number of turns."""

    repetitions: int
    sending_s: float
    producers: tuple[int, ...] = (1, 64)
    body_bytes: int = 100
    brokers: tuple[str, ...] = (BROKER_4_9_7, BROKER_5_3_3)


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure every server once in each turn."""
    if why := why_not(*parameters.brokers) or ("" if shutil.which("go") else "there is no Go"):
        samples.note(f"Not measured: {why}.")
        return
    samples.note(
        f"The program `{MODULE}` sends bodies of {parameters.body_bytes} B for {parameters.sending_s:g} s, in a process "
        "of its own on the machine of the server. The rate is that of its last ten seconds. It tells latency in whole "
        "milliseconds, which says nothing here."
    )
    with scratch(directory) as built:
        program = built / "benchmark"
        subprocess.run(["go", "build", "-o", str(program), MODULE], cwd=_GO, check=True)
        for _ in range(parameters.repetitions):
            for server in (SERVE, *parameters.brokers):
                with scratch(directory) as home, running(server, home) as found:
                    for producers in parameters.producers:
                        _measure(parameters, server, found, [str(program)], producers, samples)
    for broker in parameters.brokers:
        for case in map(_case, parameters.producers):
            name = f"rmq serve to {broker}"
            samples.add_ratio(name, case, (SERVE, case), (broker, case), at_least(1.0))
            used = processor_name(case)
            samples.add_ratio(name, used, (SERVE, used), (broker, used), at_most(1 / 3))


def _measure(
    parameters: Parameters, server: str, found: Running, program: list[str], producers: int, samples: Samples
) -> None:
    options = ["-t", "Sent", "-g", "benchmark", "-n", found.address, "-i", str(producers)]
    before = found.processor_s
    with subprocess.Popen(
        [*program, "producer", *options, "-s", str(parameters.body_bytes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            time.sleep(parameters.sending_s)
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=_END_S)
        finally:
            process.kill()
    told = _RATE.findall(output)
    if not told:
        raise RuntimeError(f"the program told no rate: {output[-1000:]}")
    rate, total = map(int, told[-1])

    def add(case: str, unit: Unit, value: float) -> None:
        samples.add(server, case, unit, value)
        print(f"{server}, {case}: {value:,.2f} {unit}", file=sys.stderr)

    add(_case(producers), "/s", rate)
    add(processor_name(_case(producers)), "µs", (found.processor_s - before) / total * 1e6)


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
