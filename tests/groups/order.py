"""Checks the order of a history that several members wrote into one journal.

A line is ``pid start LANE NUMBER ATTEMPT``, ``pid end LANE NUMBER`` or ``pid fail LANE NUMBER ATTEMPT``; a lane is what
is to be handled in order, a queue or a sharding key, and its numbers count from 0. Each line is one ``write`` to a file
opened for appending, so the lines stand in the order in which they happened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Lane:
    """What was seen of one lane so far."""

    ended: int = 0
    """Messages below it have ended."""
    running: dict[int, int] = field(default_factory=dict)
    """By pid the number that it has started and not ended."""
    last_end_by: int = 0
    """Who ended the last one."""
    again: set[tuple[int, int]] = field(default_factory=set)
    """By pid the numbers that were rightly started after they had ended."""


def violations(lines: Iterable[str], *, killed: Collection[int] = (), stopped: Collection[int] = ()) -> list[str]:
    """Return what is wrong in a history, in words.

    ``killed`` are processes that were killed: what one was running may be started again, and so may the one that it had
    just ended. ``stopped`` are those that were stopped past their lease: the same, and its running one may end late.
    """
    lanes: dict[str, Lane] = {}
    found = []
    excused = {*killed, *stopped}
    for line in lines:
        who, what, name, *rest = line.split()
        pid, number = int(who), int(rest[0])
        lane = lanes.setdefault(name, Lane())
        if what != "start":
            del lane.running[pid]
        if what == "end":
            if number == lane.ended:
                lane.ended += 1
                lane.last_end_by = pid
            elif pid not in stopped and (pid, number) not in lane.again:
                found.append(f"{line}: ended out of order, {lane.ended} was next")
        if what != "start":
            continue
        others = {other for other in lane.running if other not in excused}
        if others or pid in lane.running:
            found.append(f"{line}: {lane.running} runs already")
        again = number == lane.ended - 1 and lane.last_end_by in excused
        if again:
            lane.again.add((pid, number))
        elif number != lane.ended:
            found.append(f"{line}: {lane.ended} is next")
        lane.running[pid] = number
    return found


def ends(lines: Iterable[str]) -> dict[str, set[int]]:
    """Return the numbers that have ended, by lane."""
    found: dict[str, set[int]] = {}
    for line in lines:
        _, what, name, number, *_ = line.split()
        if what == "end":
            found.setdefault(name, set()).add(int(number))
    return found
