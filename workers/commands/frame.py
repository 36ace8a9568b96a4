"""Frame: what ``rmq top`` shows of two samples: rows for a program, and lines for a person."""

# ruff: noqa: PLC0415 - imports inside functions: the help of commands is quick

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqclient.workers.console.layout import printable, shortened, width_of

if TYPE_CHECKING:
    from rmqclient.metrics import Call, Observation, WorkerStatus
    from rmqclient.store.observe.summary import Group

SORTS = ("lag", "in_s", "out_s", "in_flight", "group")


def rows_of(before: Observation, now: Observation, letters: Mapping[str, int], hung_after_s: float) -> dict[str, Any]:
    """Return what two samples tell, for a program; ``letters`` are the dead letters of groups that wait.

    Rates are per second between them; None, which is not measured, if they are the same.
    """
    from rmqclient.metrics import topic_rates
    from rmqclient.names import is_of_application

    is_measured = before is not now
    arrived = {topic: rates["messages_in"] for topic, rates in topic_rates(before, now).items()}
    groups = _groups(before, now, arrived, letters, hung_after_s)
    in_s = sum(rate for topic, rate in arrived.items() if is_of_application(topic))
    out_s = sum(row["out_s"] or 0 for row in groups)
    return {
        "disk_used_ratio": round(now.disk.used_ratio, 4),
        "poisoned": now.disk.poisoned,
        "housekeeper": now.has_housekeeper,
        "in_s": round(in_s, 1) if is_measured else None,
        "out_s": round(out_s, 1) if is_measured else None,
        "in_flight": sum(row["in_flight"] for row in groups),
        "running": len(now.calls),
        "waiting": now.timer.waiting,
        "groups": groups,
        "workers": [_worker(each, now.calls, hung_after_s) for each in now.workers],
    }


def sorted_by(sort: str, groups: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of groups by one of :data:`SORTS`, the largest first."""
    return sorted(groups, key=lambda row: (row["group"] if sort == "group" else -(row[sort] or 0), row["group"]))


class Wish(NamedTuple):
    """What a person wants to see of a frame."""

    shows: str = "gw"
    """``g`` for groups, ``w`` for workers."""
    idle: bool = False
    """Each idle group has a line of its own."""
    first: int = 0
    """How many lines of the groups, or of the workers alone, were scrolled away."""
    colours: bool = False


def lines_of(found: Mapping[str, Any], wish: Wish, size: os.terminal_size) -> list[str]:
    """Return rows as lines for a person, of at most the columns and, with one for a note, the lines of the terminal.

    Groups leave a third of the lines to workers. What does not fit is counted.
    """
    groups = _groups_of(found["groups"], wish, size.columns) if "g" in wish.shows else []
    workers = _workers_of(found["workers"], wish, size.columns) if "w" in wish.shows else []
    head = _headlines(found, size.columns)
    space = size.lines - len(head) - 1
    if groups and workers:
        own = max(space // 3, space - len(groups) - 1)
        workers = _window(workers, own, 0)
        groups = [*_window(groups, space - len(workers) - 1, wish.first), ""]
    else:
        groups, workers = _window(groups, space, wish.first), _window(workers, space, wish.first)
    return [_cut(line, size.columns) for line in [*head, *groups, *workers][: max(0, size.lines - 1)]]


def _cut(line: str, columns: int) -> str:
    """Return a line of at most so many columns; one that is cut loses its colours."""
    plain = _CODE.sub("", line)
    return line if width_of(plain) <= columns else shortened(plain, columns)


def _window(lines: list[str], space: int, first: int) -> list[str]:
    """Return the head and so many of the lines below it as there is space for; the last one counts the others."""
    if len(lines) <= space:
        return lines
    if space < 2:
        return lines[: max(0, space)]
    head, *rest = lines
    first = max(0, min(first, len(rest) - space + 2))
    shown = rest[first : first + space - 2]
    return [head, *shown, f"... {len(rest) - len(shown)} more: j, k, w"]


# --- rows --------------------------------------------------------------------------------------------


def _groups(
    before: Observation, now: Observation, arrived: Mapping[str, float], letters: Mapping[str, int], hung_after_s: float
) -> list[dict[str, Any]]:
    from rmqclient.metrics import FOR_GOOD, group_rates
    from rmqclient.store.observe.summary import groups_of

    out: dict[str, float] = {}
    for (group, _), rates in group_rates(before, now).items():
        out[group] = out.get(group, 0.0) + sum(rates[fate] for fate in FOR_GOOD)
    return [
        {
            **_progress(group, now.wall_ms),
            "in_s": round(sum(arrived.get(topic, 0.0) for topic in group.topics), 1) if before is not now else None,
            "out_s": round(out.get(group.group, 0.0), 1) if before is not now else None,
            "dead_letters": letters.get(group.group, 0),
        }
        for group in groups_of(now, hung_after_s)
    ]


def _progress(group: Group, now_ms: int) -> dict[str, Any]:
    return {
        "group": group.group,
        "topics": list(group.topics),
        "members": len(group.members),
        "spare": len(group.spare),
        "lag": group.lag,
        "in_flight": group.in_flight,
        "oldest_s": group.oldest_s(now_ms),
        "retries": group.retries,
        "waiting": group.waiting,
        "state": group.state,
    }


def _worker(each: WorkerStatus, calls: Iterable[Call], hung_after_s: float) -> dict[str, Any]:
    from rmqclient.store.observe.summary import state_of_worker

    return {
        "slot": each.slot,
        "name": each.name,
        "pid": each.pid,
        "supervisor_pid": each.supervisor_pid,
        "beat_age_s": _seconds(each.beat_age_ms),
        "resident_mib": _mib(each.resident_bytes),
        "restarts": each.restarts,
        "state": state_of_worker(each, calls, hung_after_s),
    }


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds / 1000, 3)


def _mib(resident: int | None) -> float | None:
    return None if resident is None else round(resident / 1_048_576, 1)


# --- lines -------------------------------------------------------------------------------------------


_WIDE = 110
"""Columns from which a group has all of its numbers."""
_LEAST_NAME = 12
_COLOURS = {
    "\x1b[31m": ("hung", "behind retention", "a file cannot be read", "a retry cannot be stored", "silent", "losing"),
    "\x1b[33m": ("paused", "no members", "no owner", "suspended", "flow control", "overdue"),
    "\x1b[2m": ("idle",),
}
_CODE = re.compile("\x1b\\[[0-9]*m")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class _Column(NamedTuple):
    head: str
    width: int
    cell: Callable[[Mapping[str, Any]], str]
    is_for_wide: bool = False


def _headlines(found: Mapping[str, Any], columns: int) -> list[str]:
    keeper = "at work" if found["housekeeper"] else "none"
    poisoned = "  POISONED" if found["poisoned"] else ""
    numbers = (
        f"disk {found['disk_used_ratio']:.0%}  in {_rate(found['in_s'])}/s  out {_rate(found['out_s'])}/s  "
        f"in flight {found['in_flight']:,}  waiting {found['waiting']:,}  housekeeper {keeper}"
    )
    return [shortened(found["store"], columns - len(poisoned)) + poisoned, shortened(numbers, columns), ""]


_GROUP_COLUMNS = (
    _Column("IN/S", 6, lambda row: _rate(row["in_s"])),
    _Column("OUT/S", 6, lambda row: _rate(row["out_s"])),
    _Column("LAG", 7, lambda row: _count(row["lag"])),
    _Column("OLDEST", 8, lambda row: _age(row["oldest_s"])),
    _Column("FLIGHT", 6, lambda row: _count(row["in_flight"]), is_for_wide=True),
    _Column("RETRY", 6, lambda row: _count(row["retries"]), is_for_wide=True),
    _Column("WAIT", 6, lambda row: _count(row["waiting"]), is_for_wide=True),
    _Column("DEAD", 6, lambda row: _count(row["dead_letters"])),
)
_WORKER_COLUMNS = (
    _Column("PID", 8, lambda row: str(row["pid"])),
    _Column("BEAT", 6, lambda row: _age(row["beat_age_s"])),
    _Column("MIB", 6, lambda row: f"{row['resident_mib'] or 0:,.0f}"),
    _Column("STARTS", 6, lambda row: _count(row["restarts"])),
)


def _groups_of(rows: Sequence[Mapping[str, Any]], wish: Wish, columns: int) -> list[str]:
    shown = [row for row in rows if wish.idle or not _is_idle(row)]
    folded = len(rows) - len(shown)
    note = [f"{folded} idle group{'s' if folded > 1 else ''}: i shows them"] if folded else []
    note = note or ([] if shown else ["no groups yet"])
    return [*_table("GROUP", [(row["group"], row) for row in shown], _GROUP_COLUMNS, wish, columns), *note]


def _is_idle(row: Mapping[str, Any]) -> bool:
    return row["state"] == "idle" and not (row["dead_letters"] or row["in_s"] or row["out_s"])


def _workers_of(rows: Sequence[Mapping[str, Any]], wish: Wish, columns: int) -> list[str]:
    named = [(row["name"] or f"slot {row['slot']}", row) for row in rows]
    return [*_table("WORKER", named, _WORKER_COLUMNS, wish, columns), *([] if named else ["no workers"])]


def _table(
    head: str, rows: list[tuple[str, Mapping[str, Any]]], every: Sequence[_Column], wish: Wish, columns: int
) -> list[str]:
    """Return lines of a name, numbers and a state: states come first, and names keep both their ends."""
    shown = [each for each in every if columns >= _WIDE or not each.is_for_wide]
    space = columns - sum(each.width + 1 for each in shown) - 2
    states = max((width_of(row["state"]) for _, row in rows), default=0)
    longest = max((width_of(name) for name, _ in rows), default=0)
    names = max(len(head), min(longest, max(_LEAST_NAME, space - states)))
    first = " ".join([f"{head:<{names}}", *(f"{each.head:>{each.width}}" for each in shown)])
    lines = [_painted(f"{first}  STATE", _BOLD, wish)]
    for name, row in rows:
        text = shortened(printable(name), names)
        numbers = " ".join(f"{each.cell(row):>{each.width}}" for each in shown)
        state = shortened(row["state"], max(1, space - names))
        lines.append(f"{text}{' ' * (names - width_of(text))} {numbers}  {_painted(state, _colour_of(state), wish)}")
    return lines


def _colour_of(state: str) -> str:
    return next((colour for colour, begins in _COLOURS.items() if state.startswith(begins)), "")


def _painted(text: str, colour: str, wish: Wish) -> str:
    return f"{colour}{text}{_PLAIN}" if colour and wish.colours else text


def _rate(value: float | None) -> str:
    return "-" if value is None else _count(round(value))


def _count(value: int) -> str:
    """Return a number in at most six characters: ``99,999``, ``1.2M``."""
    if value < 100_000:
        return f"{value:,}"
    for unit, size in (("k", 10**3), ("M", 10**6), ("G", 10**9)):
        if value < size * 1_000:
            return f"{value / size:.3g}{unit}"
    return f"{value:.1e}"


def _age(seconds: float | None) -> str:
    from rmqclient.health import words

    return "-" if seconds is None else words.age(seconds)
