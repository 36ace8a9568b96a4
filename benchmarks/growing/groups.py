"""Groups: more and more groups of one worker handle the same log, each of them all of it."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.child import Begin, Child, alone
from benchmarks.growing.cost import Worked, per_processor_second
from benchmarks.growing.workers import fill
from benchmarks.measure import Samples, cost_ns, scratch
from benchmarks.starting.scale import FLAT
from benchmarks.traffic import TOPIC, ignore, watch
from rmqclient import App
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store

HANDLED = "handle a message in each group"
HANDLED_CPU = "processor time of a message in each group"

_QUEUES = 4
_RECORD_BYTES = 356
_DRAIN_S = 30.0


def measure(messages: int, counts: tuple[int, ...], directory: Path, samples: Samples) -> None:
    """Measure every number of groups once, each on a log of its own with as many messages."""
    for count in counts:
        with scratch(directory, messages * _RECORD_BYTES) as root:
            alone(Child(fill, root, messages, _QUEUES))
            done = alone(Child(handle_all, root, count))
        samples.add(HANDLED, groups(count), "ns", cost_ns(done.span))
        samples.add(HANDLED_CPU, groups(count), "ns", 1e9 / per_processor_second(done))


def compare(counts: tuple[int, ...], samples: Samples) -> None:
    """Add the ratios to one group."""
    one = groups(counts[0])
    for count in counts[1:]:
        case = groups(count)
        for name in (HANDLED, HANDLED_CPU):
            samples.add_ratio(f"{name}, to {one}", case, (name, case), (name, one), FLAT)


def handle_all(begin: Begin, root: Path, count: int) -> Worked:
    """Run in a child: handle every message in every group, each on one thread, with a handler that does nothing."""
    app = App(root)
    for number in range(count):
        app.handler(TOPIC, group=f"group-{number}")(ignore)
    with open_store(root) as store:
        messages = Admin(store).topic(TOPIC).messages
        consumer = PushConsumer(store, app.handlers)
        consumer.hold()
        consumer.start()
        begin()
        used_s = time.process_time()
        consumer.resume()
        span = watch(consumer, count * messages)
        used_s = time.process_time() - used_s
        consumer.stop(_DRAIN_S)
    return Worked(span, count * messages, used_s)


def groups(count: int) -> str:
    """Return a case: ``1 group``, ``100 groups``."""
    return f"{count} group{'s' * (count > 1)}"
