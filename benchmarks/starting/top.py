"""Top: the processor time that ``rmq top`` takes while messages are sent and handled beside it."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import traffic
from benchmarks.child import Begin, Child
from benchmarks.measure import Benchmark, Samples, Size, at_most, scratch
from rmqclient import App, Producer
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.workers.commands.top import View

_SCREEN = os.terminal_size((160, 50))
_SHARE = at_most(0.01)
_END = "end"
"""A file of this name ends the children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The load, how often top looks at it, and at how much."""

    messages_per_s: int
    looks: int
    interval_s: float
    idle_groups: tuple[int, ...]
    """Groups on the topic beside the one that consumes; they lag in each queue."""
    queues: tuple[int, ...]


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Look and draw at an interval, while two other processes send and handle."""
    samples.note(
        f"One process sends {parameters.messages_per_s:,} messages a second in batches of {traffic.BATCH}, one handles "
        "them. Top looks once a second and makes the lines of a frame; its share of a core is the processor time of "
        "its thread in that second. The rates are those that it shows itself."
    )
    for idle_groups, queues in zip(parameters.idle_groups, parameters.queues, strict=True):
        with scratch(directory) as root:
            _measure(parameters, root, idle_groups, queues, samples)


def _measure(parameters: Parameters, root: Path, idle_groups: int, queues: int, samples: Samples) -> None:
    case = f"{(1 + idle_groups) * queues:,} group-queues"
    with Producer(root) as producer, Admin(root) as admin:
        producer.create_topic(traffic.TOPIC, queues)
        for number in range(idle_groups):
            admin.seek(f"idle-{number}", traffic.TOPIC, "earliest")
        children = [Child(send, root, parameters.messages_per_s), Child(handle, root)]
        for child in children:
            child.wait_until_ready()
            child.begin()
        with contextlib.closing(View(root, sort="lag", wanted="", hung_after_s=300)) as view:
            view.look()
            for _ in range(parameters.looks):
                time.sleep(parameters.interval_s)
                begun = time.thread_time()
                view.look()
                view.lines(_SCREEN)
                samples.add("share of a core", case, "x", time.thread_time() - begun, _SHARE)
                rows = view.rows()
                samples.add("sent", case, "/s", rows["in_s"])
                samples.add("handled", case, "/s", rows["out_s"])
        (root / _END).touch()
        for child in children:
            child.result()


def send(begin: Begin, root: Path, messages_per_s: int) -> None:
    """Send prepared batches at a pace until the end."""
    batches = traffic.prebuilt(100)
    with Producer(root) as producer:
        begin()
        begun, sent = time.monotonic(), 0
        while not (root / _END).exists():
            producer.send_batch(batches[sent % len(batches)], traffic.KEYS[sent % len(traffic.KEYS)])
            sent += 1
            time.sleep(max(0.0, begun + sent * traffic.BATCH / messages_per_s - time.monotonic()))


def handle(begin: Begin, root: Path) -> None:
    """Handle everything with a handler that does nothing, until the end."""
    app = App(root)
    app.handler(traffic.TOPIC, group="readers")(traffic.ignore)
    consumer = PushConsumer(root, app.handlers)
    begin()
    consumer.start()
    while not (root / _END).exists():
        time.sleep(0.05)
    consumer.close()


BENCHMARK = Benchmark(
    name="top",
    title="Watching a store",
    parameters={
        Size.FULL: Parameters(messages_per_s=100_000, looks=30, interval_s=1.0, idle_groups=(0, 9), queues=(4, 100)),
        Size.QUICK: Parameters(messages_per_s=100_000, looks=8, interval_s=1.0, idle_groups=(0, 9), queues=(4, 100)),
        Size.SMALLEST: Parameters(messages_per_s=1_000, looks=2, interval_s=0.05, idle_groups=(1,), queues=(2,)),
    },
    run=run,
)
