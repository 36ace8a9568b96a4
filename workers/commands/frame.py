"""Frame: what ``rmq top`` shows of two samples: rows for a program, and lines for a person."""

# ruff: noqa: PLC0415 - imports inside functions: the help of commands is quick

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqclient.metrics import Call, Observation, WorkerStatus
    from rmqclient.store.observe.summary import Group

SORTS = ("lag", "in_s", "out_s", "in_flight", "group")

_GROUP_HEAD = (
    f"{'GROUP':<24} {'IN/S':>8} {'OUT/S':>8} {'LAG':>10} {'OLDEST':>8} {'FLIGHT':>6} "
    f"{'RETRY':>6} {'WAIT':>6} {'DEAD':>6}  STATE"
)
_WORKER_HEAD = f"{'WORKER':<12} {'PID':>8} {'BEAT':>8} {'MIB':>7} {'STARTS':>6}  STATE"


def rows_of(before: Observation, now: Observation, letters: Mapping[str, int], hung_after_s: float) -> dict[str, Any]:
    """Return what two samples tell, for a program; ``letters`` are the dead letters of groups that wait.

    Rates are per second between them; 0 if they are the same.
    """
    from rmqclient.metrics import topic_rates
    from rmqclient.names import is_of_application

    arrived = {topic: rates["messages_in"] for topic, rates in topic_rates(before, now).items()}
    groups = _groups(before, now, arrived, letters, hung_after_s)
    return {
        "disk_used_ratio": round(now.disk.used_ratio, 4),
        "poisoned": now.disk.poisoned,
        "housekeeper": now.has_housekeeper,
        "in_s": round(sum(rate for topic, rate in arrived.items() if is_of_application(topic)), 1),
        "out_s": round(sum(row["out_s"] for row in groups), 1),
        "in_flight": sum(row["in_flight"] for row in groups),
        "running": len(now.calls),
        "waiting": now.timer.waiting,
        "groups": groups,
        "workers": [_worker(each, now.calls, hung_after_s) for each in now.workers],
    }


def sorted_by(sort: str, groups: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of groups by one of :data:`SORTS`, the largest first."""
    return sorted(groups, key=lambda row: (row["group"] if sort == "group" else -row[sort], row["group"]))


def lines_of(found: Mapping[str, Any], shows: str, size: os.terminal_size) -> list[str]:
    """Return rows as lines for a person, cut to the size of the terminal; ``shows`` has ``g``, ``w`` or both."""
    lines = [_headline(found), ""]
    if "g" in shows:
        lines += [_GROUP_HEAD, *(map(_group_line, found["groups"]) if found["groups"] else ["no groups yet"]), ""]
    if "w" in shows:
        lines += [_WORKER_HEAD, *(map(_worker_line, found["workers"]) if found["workers"] else ["no workers"])]
    return [line[: size.columns] for line in lines[: size.lines - 1]]


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
            "in_s": round(sum(arrived.get(topic, 0.0) for topic in group.topics), 1),
            "out_s": round(out.get(group.group, 0.0), 1),
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


def _headline(found: Mapping[str, Any]) -> str:
    keeper = "at work" if found["housekeeper"] else "none"
    return (
        f"{found['store']}  disk {found['disk_used_ratio']:.0%}  in {found['in_s']:,.0f}/s  out {found['out_s']:,.0f}/s"
        f"  in flight {found['in_flight']:,}  waiting {found['waiting']:,}  housekeeper {keeper}"
        f"{'  POISONED' if found['poisoned'] else ''}"
    )


def _group_line(row: Mapping[str, Any]) -> str:
    return (
        f"{row['group'][:24]:<24} {row['in_s']:>8,.0f} {row['out_s']:>8,.0f} {row['lag']:>10,} "
        f"{_age(row['oldest_s']):>8} {row['in_flight']:>6,} "
        f"{row['retries']:>6,} {row['waiting']:>6,} {row['dead_letters']:>6,}  {row['state']}"
    )


def _worker_line(row: Mapping[str, Any]) -> str:
    name = row["name"] or f"slot {row['slot']}"
    return (
        f"{name[:12]:<12} {row['pid']:>8} {_age(row['beat_age_s']):>8} {row['resident_mib'] or 0:>7,.0f} "
        f"{row['restarts']:>6,}  {row['state']}"
    )


def _age(seconds: float | None) -> str:
    from rmqclient.health import words

    return "-" if seconds is None else words.age(seconds)
