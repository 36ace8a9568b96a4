"""Long log: openings, searches, a whole check and memory after very many messages, beside a log of few."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import Child, alone
from benchmarks.growing import log_child
from benchmarks.growing.cost import per_processor_second
from benchmarks.measure import Samples, at_most, cost_ns, has_room, scratch
from benchmarks.starting.scale import FLAT, SOON
from benchmarks.traffic import BATCH
from rmqclient.store.runtime.shared_state import FILE_NAME as RUNTIME_FILE

MADE = "send_batch of 100, while the log grows"
AFTER_KILL = "open after a kill -9 of that sender"
AFTER_LOSS = "open after a kill -9 and the loss of the runtime state"
AFTER_CLOSE = "open after a clean close"
CLOSED = "close"
BY_KEY, FIRST_BY_KEY = "search by key", "search by key, the first of a process"
BY_TIME, FIRST_BY_TIME = "search by time", "search by time, the first of a process"
CONSUMED, CONSUMED_CPU = "consume the last messages", "processor time of one of these messages"
VERIFIED, VERIFIED_EACH = "rmq store verify", "rmq store verify, for a million messages"
RESIDENT_OPENED = "most resident memory: opened"
RESIDENT_KILLED = "most resident memory: opened after the kill"
RESIDENT_LOST = "most resident memory: opened after the loss"
RESIDENT_CONSUMED = "most resident memory: consumed the last messages"
RESIDENT_VERIFIED = "most resident memory: rmq store verify"
DISK = "disk space of a message"
SMALL = at_most(256.0)

_BODY_BYTES = 100
_MIB = 1 << 20
_BYTES_OF_A_MESSAGE = 360
"""Somewhat more than a message takes on the disk."""
_FIXED_BYTES = 1 << 30
"""Somewhat more than a store takes before its first message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """The numbers of messages."""

    short: int
    long: int
    consumed: int
    """The last messages of either log, which a new group handles."""
    again: int
    """A second sender adds them to either log, and the runtime state is lost with them."""
    searches: int

    @property
    def cases(self) -> dict[str, int]:
        """The name of each log, and its number of messages; the short one comes first."""
        return {_messages(count): count for count in (self.short, self.long)}


def measure(logs: Logs, repetitions: int, directory: Path, samples: Samples) -> None:
    """Make both logs, then look at each of them in each turn; note it when there is no room."""
    needed = (logs.short + logs.long + 2 * logs.again) * _BYTES_OF_A_MESSAGE + _FIXED_BYTES
    if not has_room(needed, _messages(logs.long), directory, samples):
        return
    _explain(logs, samples)
    with scratch(directory, logs.short * _BYTES_OF_A_MESSAGE) as short, scratch(directory, 0) as long:
        roots = dict(zip(logs.cases, (short, long), strict=True))
        for case, root in roots.items():
            _make(root, case, logs.cases[case], logs.again, samples)
        now = {case: messages + logs.again for case, messages in logs.cases.items()}
        for turn in range(repetitions):
            for case, root in roots.items():
                _open(root, case, now[case], samples)
                _search(root, case, now[case], logs.searches, samples)
                _consume(root, case, f"turn-{turn}", logs.consumed, samples)
        for case, root in roots.items():
            _verify(root, case, now[case], samples)
    _compare(samples, *logs.cases)


def _explain(logs: Logs, samples: Samples) -> None:
    samples.note(
        f"{_messages(logs.long)}: sent to {log_child.QUEUES} queues in batches of {BATCH}, one message of each with a "
        "key of its own. The sender was killed behind the last batch. The next opening reads what was sent since the "
        "last flush of the consume queues, at most a minute of messages. Then another sender sent "
        f"{_messages(logs.again)}, was killed, too, and the runtime file was removed, as a reboot loses it."
    )
    samples.note(
        f"A search looks for one of {logs.searches} messages from all over the log; by key it is that of "
        "`Reader.find`, which looks for up to 64. `rmq store verify` ran on the closed store, its start included. "
        "Memory is what the kernel tells as VmHWM or ru_maxrss, with the files that the process maps."
    )


def _make(root: Path, case: str, messages: int, again: int, samples: Samples) -> None:
    """Make a log, kill its sender and open it; then do so again, and lose the runtime state, too."""
    samples.add(MADE, case, "/s", messages / _sent_s(root, 0, messages))
    after_kill = alone(Child(log_child.opening, root))
    assert after_kill.messages == messages
    samples.add(AFTER_KILL, case, "s", after_kill.open_s, SOON)
    _sent_s(root, messages, again)
    (root / RUNTIME_FILE).unlink()
    after_loss = alone(Child(log_child.opening, root))
    assert after_loss.messages == messages + again
    samples.add(AFTER_LOSS, case, "s", after_loss.open_s, SOON)
    for name, opened in ((RESIDENT_KILLED, after_kill), (RESIDENT_LOST, after_loss)):
        samples.add(name, case, "MiB", opened.resident_bytes / _MIB, SMALL)
    for name, part in ((DISK, root), (f"{DISK}: log", root / "commitlog"), (f"{DISK}: index", root / "index")):
        samples.add(name, case, "B", _disk_bytes(part) / (messages + again))


def _sent_s(root: Path, first: int, messages: int) -> float:
    """Return the seconds from the first message of a sender to its death."""
    child = Child(log_child.fill, root, first, messages, _BODY_BYTES)
    child.wait_until_ready()
    begun = time.monotonic()
    child.begin()
    with contextlib.suppress(RuntimeError, EOFError):
        child.result()
    return time.monotonic() - begun


def _open(root: Path, case: str, messages: int, samples: Samples) -> None:
    opened = alone(Child(log_child.opening, root))
    assert opened.messages == messages
    samples.add(AFTER_CLOSE, case, "s", opened.open_s, SOON)
    samples.add(CLOSED, case, "s", opened.close_s)
    samples.add(RESIDENT_OPENED, case, "MiB", opened.resident_bytes / _MIB, SMALL)


def _search(root: Path, case: str, messages: int, searches: int, samples: Samples) -> None:
    """Search for messages that have keys, from all over the log; begin with one from its middle."""
    numbers = [messages * part // searches // BATCH * BATCH for part in range(searches)]
    numbers = numbers[searches // 2 :] + numbers[: searches // 2]
    by_key = alone(Child(log_child.search_keys, root, numbers))
    by_time = alone(Child(log_child.search_times, root, numbers))
    samples.add(FIRST_BY_KEY, case, "ms", by_key.first_ms)
    samples.add(BY_KEY, case, "ms", by_key.median_ms)
    samples.add(FIRST_BY_TIME, case, "ms", by_time.first_ms)
    samples.add(BY_TIME, case, "ms", by_time.median_ms)


def _consume(root: Path, case: str, group: str, messages: int, samples: Samples) -> None:
    consumed = alone(Child(log_child.consume_last, root, group, messages))
    samples.add(CONSUMED, case, "ns", cost_ns(consumed.work.span))
    samples.add(CONSUMED_CPU, case, "ns", 1e9 / per_processor_second(consumed.work))
    samples.add(RESIDENT_CONSUMED, case, "MiB", consumed.resident_bytes / _MIB, SMALL)


def _verify(root: Path, case: str, messages: int, samples: Samples) -> None:
    verified = alone(Child(log_child.verify, root))
    samples.add(VERIFIED, case, "s", verified.took_s)
    samples.add(VERIFIED_EACH, case, "s", verified.took_s / messages * 1e6)
    samples.add(RESIDENT_VERIFIED, case, "MiB", verified.resident_bytes / _MIB, SMALL)


def _compare(samples: Samples, short: str, long: str) -> None:
    """Add the ratios of the long log to the short one. What is paid for each message should stay as it is."""
    samples.add_ratio(f"{MADE}, to {short}", long, (MADE, long), (MADE, short))
    for name in (CONSUMED, CONSUMED_CPU, VERIFIED_EACH, DISK, RESIDENT_OPENED, RESIDENT_CONSUMED):
        samples.add_ratio(f"{name}, to {short}", long, (name, long), (name, short), FLAT)
    for name in (AFTER_CLOSE, AFTER_KILL, AFTER_LOSS, BY_KEY, BY_TIME):
        samples.add_ratio(f"{name}, to {short}", long, (name, long), (name, short))


def _disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def _messages(count: int) -> str:
    if count < 1_000_000:
        return f"{count:,} messages"
    return f"{count // 1_000_000} million messages"
