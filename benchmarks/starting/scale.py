"""Scale: whether a message costs more in a topic of many queues, in a store of very many queues, or after a long log.

Costs are nanoseconds for one message of 100 B, sent by one process and consumed by one thread of another. A store of
very many queues is also opened, by a process of its own, after all other processes have closed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks import traffic
from benchmarks.child import Child, alone
from benchmarks.measure import (
    WARMED,
    Benchmark,
    Samples,
    Size,
    amount,
    at_least,
    at_most,
    cost_ns,
    has_room,
    rate,
    scratch,
    touch_pages,
)
from rmqclient import StoreConfig

SENT = "send"
CONSUMED = "consume"
APPENDED = "append in turns"
OPENED = "open after a clean close"
ATTACHED = "open beside another process"
RESIDENT = "resident memory of a sender"
DISK = "disk space of the consume queues"
EMPTY = "empty log"
FLAT = at_most(1.25)
"""Such figures vary by a quarter between two runs."""

STEADY = at_least(0.7)
SOON = at_most(5.0)
"""A few seconds."""

_BODY_BYTES = 100
_FEW_QUEUES = 8
_QUEUES_OF_A_TOPIC = 100
_QUEUES_OF_A_LONG_LOG = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The numbers of queues and messages, and the number of turns."""

    repetitions: int
    messages: int
    queues: tuple[int, ...]
    log_bytes: int
    """How long the long log is."""
    very_many: int = 10_000
    """Queues of a whole store, in topics of 100."""


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure every number of queues in each turn, then both logs in each turn."""
    samples.note(WARMED)
    samples.note(
        "The sharding keys spread the messages over all queues; a first send of each key comes before the clock "
        "starts, so that the files of all queues are there."
    )
    for _ in range(parameters.repetitions):
        for queues in parameters.queues:
            with scratch(directory, _writes(parameters)) as root:
                _measure(parameters, root, queues, traffic.TOPIC, _queues(queues), samples)
    _compare(samples, _queues(parameters.queues[-1]), _queues(parameters.queues[0]))
    if has_room(_queue_bytes(parameters.very_many), _queues(parameters.very_many), directory, samples):
        _measure_very_many(parameters, directory, samples)
    if has_room(2 * parameters.log_bytes, f"behind {amount(parameters.log_bytes)}", directory, samples):
        _measure_long_log(parameters, directory, samples)


def _measure_very_many(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Append in turn to the queues of two stores, one with few queues and one with very many; then open both."""
    few, many = _queues(_FEW_QUEUES), _queues(parameters.very_many)
    samples.note(
        f"{many}: in topics of {_QUEUES_OF_A_TOPIC}, each with its consume queue file, which has blocks for the "
        "messages that it has; the messages go to all queues in turns, and each queue has had one before the clock "
        "starts."
    )
    with scratch(directory) as few_root, scratch(directory) as many_root:
        for turn in range(parameters.repetitions):
            for case, root, queues in ((few, few_root, _FEW_QUEUES), (many, many_root, parameters.very_many)):
                if turn == 0:
                    alone(Child(traffic.send_in_turns, root, 0, _BODY_BYTES, queues, _QUEUES_OF_A_TOPIC))
                touch_pages(directory / "touched", _writes(parameters))
                opened_s = alone(Child(traffic.opening, root))
                sent, resident = alone(
                    Child(traffic.send_in_turns, root, parameters.messages, _BODY_BYTES, queues, _QUEUES_OF_A_TOPIC)
                )
                samples.add(APPENDED, case, "/s", rate(sent))
                samples.add(OPENED, case, "s", opened_s.alone, SOON)
                samples.add(ATTACHED, case, "s", opened_s.beside, SOON)
                samples.add(RESIDENT, case, "MiB", resident / 2**20)
                samples.add(DISK, case, "MiB", _disk_bytes(root / "consumequeue") / 2**20)
    samples.add_ratio(f"{APPENDED}, to {few}", many, (APPENDED, many), (APPENDED, few), STEADY)


def _measure_long_log(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Send into two stores in turn: an empty one, and one with a large topic of other messages."""
    long_log = amount(parameters.log_bytes)
    with scratch(directory, parameters.log_bytes) as root:
        alone(Child(traffic.send_bulk, root, parameters.log_bytes, "bulk"))
        for turn in range(parameters.repetitions):
            with scratch(directory, _writes(parameters)) as empty_root:
                _measure(parameters, empty_root, _QUEUES_OF_A_LONG_LOG, traffic.TOPIC, EMPTY, samples)
            topic = f"{traffic.TOPIC}-{turn}"
            touch_pages(directory / "touched", _writes(parameters))
            _measure(parameters, root, _QUEUES_OF_A_LONG_LOG, topic, long_log, samples)
    _compare(samples, long_log, EMPTY)


def _measure(parameters: Parameters, root: Path, queues: int, topic: str, case: str, samples: Samples) -> None:
    sent = alone(Child(traffic.send, root, parameters.messages, _BODY_BYTES, queue_count=queues, topic=topic))
    consumed = alone(Child(traffic.consume, root, topic=topic))
    samples.add(SENT, case, "ns", cost_ns(sent))
    samples.add(CONSUMED, case, "ns", cost_ns(consumed))


def _compare(samples: Samples, large: str, small: str) -> None:
    for name in (SENT, CONSUMED):
        samples.add_ratio(f"{name}, to {small}", large, (name, large), (name, small), FLAT)


def _queue_bytes(queues: int) -> int:
    """Return somewhat more bytes than the consume queue files of the queues reserve."""
    return queues * (StoreConfig().consume_queue_file_bytes + 4096) + (1 << 30)


def _disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def _writes(parameters: Parameters) -> int:
    """Return somewhat more bytes than the messages take."""
    return parameters.messages * (_BODY_BYTES + 256)


def _queues(number: int) -> str:
    return f"{number:,} queue{'s' * (number > 1)}"


BENCHMARK = Benchmark(
    name="scale",
    title="Many queues, a long log",
    parameters={
        Size.FULL: Parameters(repetitions=5, messages=300_000, queues=(1, 4, 16, 64), log_bytes=10 << 30),
        Size.QUICK: Parameters(repetitions=1, messages=100_000, queues=(1, 4, 16, 64), log_bytes=512 << 20),
        Size.SMALLEST: Parameters(repetitions=1, messages=100, queues=(1, 4), log_bytes=1 << 20, very_many=20),
    },
    run=run,
)
