"""Key order: messages a second that one worker handles in order, of each queue and of each sharding key.

The handler does nothing, each message is acknowledged singly. Compared with the same worker without an order, and with
a bare loop that calls the same handler. Keys are the worst case: 1,024 of them in turn, so that hardly any two messages
of a batch share a lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks import traffic
from benchmarks.child import Child, alone
from benchmarks.measure import WARMED, Benchmark, Samples, Size, at_least, in_bytes, rate, scratch
from rmqclient.handler import Order

BARE = "the handler, called in a loop"
BY_KEY = "in order of each sharding key"
BY_QUEUE = "in order of each queue"
UNORDERED = "without an order"
GOAL = at_least(400e3)

_ORDERS: dict[str, Order | None] = {UNORDERED: None, BY_QUEUE: "queue", BY_KEY: "key"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Number of messages and of turns."""

    repetitions: int
    messages: int
    body_bytes: int = 100
    threads: int = 8


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn."""
    samples.note(WARMED)
    samples.note(
        f"The messages were sent before by another process, one by one, with 1,024 sharding keys in turn, to 4 queues. "
        f"The worker is a PushConsumer with one handler in {parameters.threads} threads."
    )
    case = in_bytes(parameters.body_bytes)
    for _ in range(parameters.repetitions):
        for name, order in _ORDERS.items():
            with scratch(directory, parameters.messages * (parameters.body_bytes + 256)) as root:
                alone(Child(traffic.send, root, parameters.messages, parameters.body_bytes))
                span = alone(Child(traffic.consume, root, parameters.threads, order=order))
            samples.add(name, case, "/s", rate(span), GOAL if order == "key" else None)
        samples.add(BARE, case, "/s", rate(alone(Child(traffic.call, parameters.messages))))
    for name in (BY_KEY, BY_QUEUE):
        samples.add_ratio(f"{name} to the bare loop", case, (name, case), (BARE, case))


BENCHMARK = Benchmark(
    name="key_order",
    title="Consuming in order",
    parameters={
        Size.FULL: Parameters(repetitions=5, messages=400_000),
        Size.QUICK: Parameters(repetitions=1, messages=200_000),
        Size.SMALLEST: Parameters(repetitions=1, messages=200),
    },
    run=run,
)
