"""What the processes of a campaign said, and what follows from it: nothing lost, nothing invented, nothing twice
that need not be twice.

Everything here is pure: histories go in, figures come out, so that the judge can be tested with made-up histories.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

Name = tuple[int, int]
"""Sender and number of a message."""


class Stored(NamedTuple):
    """A message in the log at the end. ``name`` is None when its body is damaged."""

    name: Name | None
    queue_id: int
    queue_offset: int


class Delivery(NamedTuple):
    """A handler call. ``name`` is (-1, -1) when the body was damaged."""

    consumer: int
    thread: int
    started_ns: int
    name: Name
    ended: bool


@dataclass(slots=True)
class Send:
    """One send, of a batch or of one message."""

    names: list[Name]
    queue_id: int | None = None
    """Where it went; None when it never returned."""


@dataclass(slots=True)
class Figures:
    """What a campaign has come to."""

    rounds: int = 0
    kills: int = 0
    sent: int = 0
    """Messages whose send returned."""

    unknown: int = 0
    """Messages whose send never returned; some of them are stored."""

    stored: int = 0
    deliveries: int = 0
    lost: int = 0
    """Sent and not stored."""

    phantom: int = 0
    """Stored or delivered, and never sent; or stored twice."""

    damaged: int = 0
    torn_batches: int = 0
    disordered: int = 0
    """Stored in another order than sent, or in another queue than the sender was told."""

    unhandled: int = 0
    """Stored, and no handler ever returned for it."""

    sent_back: int = 0
    """Copies that were stored for a retry."""

    extra_deliveries: int = 0
    unexplained: int = 0
    """Extra deliveries of messages that no killed process was handling."""

    most_extra_per_kill: int = 0
    most_in_flight_per_kill: int = 0
    problems: list[str] = field(default_factory=list)
    """Of the two views at the end."""

    @property
    def faults(self) -> dict[str, int]:
        """Everything that must be 0."""
        names = ("lost", "phantom", "damaged", "torn_batches", "disordered", "unhandled", "unexplained")
        counts = {name: getattr(self, name) for name in names}
        return {**counts, "problems": len(self.problems)}

    def __str__(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in asdict(self).items())


def judge(
    sends: Iterable[Send],
    stored: list[Stored],
    deliveries: Iterable[Delivery],
    killed: Iterable[int],
    sent_back: Iterable[Name] = (),
) -> Figures:
    """Compare what was said with what is there. ``killed`` are the consumers that were killed while others went on.

    ``sent_back`` names a message for each copy that was stored for a retry. A kill between the copy and the
    acknowledgement leads to another copy, and each copy but the first explains a delivery.
    """
    copies = Counter(sent_back)
    figures = Figures(stored=len(stored), sent_back=copies.total())
    sent = list(sends)
    _judge_stored(sent, stored, figures)
    _judge_deliveries({each.name for each in stored if each.name}, list(deliveries), set(killed), copies, figures)
    return figures


def sends_of(sender: int, lines: Iterable[str]) -> Iterator[Send]:
    """Read what a sender said."""
    last: Send | None = None
    for line in lines:
        kind, first, count, *queue_id = line.split()
        if kind == "i":
            last = Send([(sender, int(first) + step) for step in range(int(count))])
            yield last
        elif last is not None:
            last.queue_id = int(queue_id[0])


def deliveries_of(consumer: int, lines: Iterable[str]) -> list[Delivery]:
    """Read what a consumer said."""
    running: dict[int, Delivery] = {}
    ended: list[Delivery] = []
    for line in lines:
        kind, *numbers = line.split()
        thread, at_ns, sender, number, _, _ = map(int, numbers)
        if kind == "s":
            running[thread] = Delivery(consumer, thread, at_ns, (sender, number), ended=False)
        else:
            ended.append(running.pop(thread)._replace(ended=True))
    return [*ended, *running.values()]


def _judge_stored(sends: list[Send], stored: list[Stored], figures: Figures) -> None:
    places: dict[Name, tuple[int, int]] = {}
    for name, queue_id, queue_offset in stored:
        if name is None:
            figures.damaged += 1
        elif name in places:
            figures.phantom += 1
        else:
            places[name] = (queue_id, queue_offset)
    invoked = {name for send in sends for name in send.names}
    figures.phantom += len(places.keys() - invoked)
    newest: dict[tuple[int, int], int] = {}
    for send in sends:
        found = [places[name] for name in send.names if name in places]
        _judge_send(send, found, figures)
        if found and not _follows(send.names[0][0], found, newest):
            figures.disordered += 1


def _judge_send(send: Send, found: list[tuple[int, int]], figures: Figures) -> None:
    if send.queue_id is None:
        figures.unknown += len(send.names)
    else:
        figures.sent += len(send.names)
        figures.lost += len(send.names) - len(found)
        figures.disordered += any(queue_id != send.queue_id for queue_id, _ in found)
    figures.torn_batches += 0 < len(found) < len(send.names)


def _follows(sender: int, found: list[tuple[int, int]], newest: dict[tuple[int, int], int]) -> bool:
    """Tell whether a send stands in one piece, and in its queue behind what the same sender sent before."""
    queue_id, first = found[0]
    in_one_piece = found == [(queue_id, first + step) for step in range(len(found))]
    behind = first > newest.get((sender, queue_id), -1)
    newest[sender, queue_id] = found[-1][1]
    return in_one_piece and behind


def _judge_deliveries(
    stored: set[Name], deliveries: list[Delivery], killed: set[int], copies: Counter[Name], figures: Figures
) -> None:
    by_name: dict[Name, list[Delivery]] = defaultdict(list)
    last_of_thread: dict[tuple[int, int], Delivery] = {}
    for delivery in sorted(deliveries, key=lambda each: each.started_ns):
        by_name[delivery.name].append(delivery)
        last_of_thread[delivery.consumer, delivery.thread] = delivery
    figures.deliveries = len(deliveries)
    figures.damaged += len(by_name.pop((-1, -1), []))
    figures.phantom += len(by_name.keys() - stored)
    figures.unhandled = sum(not any(each.ended for each in by_name.get(name, ())) for name in stored)
    # A thread acknowledges before it begins the next message, so a kill can only repeat the last one of each.
    in_flight = {delivery for delivery in last_of_thread.values() if delivery.consumer in killed}
    _judge_extra(by_name, in_flight, copies, figures)


def _judge_extra(
    by_name: Mapping[Name, list[Delivery]], in_flight: set[Delivery], copies: Counter[Name], figures: Figures
) -> None:
    extra: dict[int, int] = defaultdict(int)
    for name, delivered in by_name.items():
        explained = max(0, copies[name] - 1)
        for repeated in delivered[:-1]:
            figures.extra_deliveries += 1
            if repeated in in_flight:
                extra[repeated.consumer] += 1
            elif explained:
                explained -= 1
            else:
                figures.unexplained += 1
    held: dict[int, int] = defaultdict(int)
    for delivery in in_flight:
        held[delivery.consumer] += 1
    figures.most_extra_per_kill = max(extra.values(), default=0)
    figures.most_in_flight_per_kill = max(held.values(), default=0)
