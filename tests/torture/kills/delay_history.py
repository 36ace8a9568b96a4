"""What became of delayed messages: what their producers, their consumers and the log say, compared.

Everything here is pure, so that the judge can be tested with histories made by hand.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

Name = tuple[int, int]
"""Producer and number of a message."""

BESIDE_MS = 3_000
"""Due so soon behind a kill of the housekeeper, a message is counted beside it."""
BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)


class Fate(enum.Enum):
    """What the producer of a message knows of it."""

    SENT = "sent"
    CANCELLED = "cancelled"
    NOT_CANCELLED = "not cancelled"
    PERHAPS_CANCELLED = "perhaps cancelled"


class Copy(NamedTuple):
    """A message as it stands in its own topic, to which it was delivered."""

    name: Name
    due_ms: int
    born_ms: int
    stored_ms: int


class Handled(NamedTuple):
    """A handler call."""

    consumer: int
    at_ms: int
    name: Name
    due_ms: int


@dataclass(slots=True)
class Judgement:
    """What is wrong, and what is to be told."""

    problems: list[str] = field(default_factory=list)
    repeated: int = 0
    """Handler calls beyond the first of a message."""

    most_pending: int = 0
    quiet: Counter[int] = field(default_factory=Counter)
    """By ms of lateness, how many messages."""
    while_sending: Counter[int] = field(default_factory=Counter)
    beside_kills: Counter[int] = field(default_factory=Counter)


def fates_of(producer: int, lines: Iterable[str]) -> dict[Name, Fate]:
    """Read what the lives of one producer said."""
    fates: dict[Name, Fate] = {}
    for line in lines:
        kind, number, *rest = line.split()
        name = producer, int(number)
        if kind == "s":
            fates[name] = Fate.SENT
        elif kind == "C":
            fates[name] = Fate.PERHAPS_CANCELLED
        else:
            fates[name] = Fate.CANCELLED if rest == ["1"] else Fate.NOT_CANCELLED
    return fates


def handled_of(consumer: int, lines: Iterable[str]) -> list[Handled]:
    """Read what a consumer said."""
    return [
        Handled(consumer, at_ms, (producer, number), due_ms)
        for at_ms, producer, number, due_ms in (map(int, line.split()) for line in lines)
    ]


def judge(
    fates: dict[Name, Fate],
    in_flight: set[Name],
    copies: list[Copy],
    handled: list[Handled],
    killed_consumers: set[int],
    kills_ms: list[int],
    sent_ms: int = 0,
) -> Judgement:
    """Compare. ``in_flight`` are the messages whose send a kill cut short; ``kills_ms``, ascending, of housekeepers.

    Up to ``sent_ms`` messages were sent.
    """
    found = Judgement()
    _judge_copies(fates, in_flight, copies, found)
    _judge_handled({copy.name for copy in copies}, handled, killed_consumers, found)
    for copy in copies:
        before = bisect_right(kills_ms, copy.due_ms)
        is_beside = before > 0 and copy.due_ms - kills_ms[before - 1] < BESIDE_MS
        otherwise = found.while_sending if copy.due_ms < sent_ms else found.quiet
        (found.beside_kills if is_beside else otherwise)[copy.stored_ms - copy.due_ms] += 1
    found.most_pending = most_pending(copies)
    return found


def _judge_copies(fates: dict[Name, Fate], in_flight: set[Name], copies: list[Copy], found: Judgement) -> None:
    times = Counter(copy.name for copy in copies)
    _tell(found, "stored before it was due", [copy.name for copy in copies if copy.stored_ms < copy.due_ms])
    _tell(found, "delivered twice", [name for name, count in times.items() if count > 1])
    _tell(found, "delivered, and never sent", [name for name in times if name not in fates and name not in in_flight])
    _tell(
        found,
        "lost",
        [name for name, fate in fates.items() if fate in (Fate.SENT, Fate.NOT_CANCELLED) and name not in times],
    )
    _tell(
        found,
        "delivered, and cancelled",
        [name for name, fate in fates.items() if fate is Fate.CANCELLED and name in times],
    )


def _judge_handled(delivered: set[Name], handled: list[Handled], killed: set[int], found: Judgement) -> None:
    calls: dict[Name, int] = Counter(call.name for call in handled)
    _tell(found, "handled before it was due", [call.name for call in handled if call.at_ms < call.due_ms])
    _tell(found, "handled, and never delivered", [name for name in calls if name not in delivered])
    _tell(found, "never handled", [name for name in delivered if name not in calls])
    # A consumer has one thread and acknowledges before it begins the next message: a kill can repeat its last one.
    last = {call.consumer: call.name for call in handled if call.consumer in killed}
    excused = Counter(last.values())
    _tell(found, "handled twice, and not in flight at a kill", [n for n in calls if calls[n] - 1 > excused[n]])
    found.repeated = sum(calls.values()) - len(calls)


def most_pending(copies: Iterable[Copy]) -> int:
    """Return how many messages waited at once, at most, to a tenth of a second."""
    change: dict[int, int] = defaultdict(int)
    for copy in copies:
        change[copy.born_ms // 100] += 1
        change[copy.due_ms // 100] -= 1
    waiting = most = 0
    for moment in sorted(change):
        waiting += change[moment]
        most = max(most, waiting)
    return most


def histogram(lateness: Counter[int]) -> str:
    """Return shares by upper bounds, of what is not empty."""
    total = lateness.total()
    counts: Counter[str] = Counter()
    for late_ms, count in lateness.items():
        bound = next((each for each in BOUNDS_MS if late_ms <= each), None)
        counts[f"<= {bound:,} ms" if bound else f"> {BOUNDS_MS[-1]:,} ms"] += count
    labels = [*(f"<= {bound:,} ms" for bound in BOUNDS_MS), f"> {BOUNDS_MS[-1]:,} ms"]
    return ", ".join(f"{label} {counts[label] / total:.2%}" for label in labels if counts[label]) or "none"


def percentile(lateness: Counter[int], share: float) -> int:
    """Return the ms below which so large a share of the messages was late; 0 without any."""
    left = share * lateness.total()
    for late_ms in sorted(lateness):
        left -= lateness[late_ms]
        if left <= 0:
            return late_ms
    return 0


def _tell(found: Judgement, what: str, names: list[Name]) -> None:
    if names:
        shown = ", ".join(f"{number} of producer {producer}" for producer, number in names[:5])
        found.problems.append(f"{what}: {len(names)} messages, such as {shown}")
