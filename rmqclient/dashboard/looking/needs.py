"""What needs somebody: the lines of the overview, the worst first. Each names the page where it is put right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmqclient.dashboard.looking.groups import GroupLine
from rmqclient.dashboard.looking.sample import DeadLetterCount
from rmqclient.local.glance import Glance

_HUNG_AFTER_S = 60.0
_SILENT_AFTER_S = 10.0
_DISK_USED = 0.8


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that somebody should look at."""

    level: str
    """``bad`` or ``warn``."""
    text: str
    path: tuple[str, ...]
    """Parts of the path of the page."""
    query: dict[str, str]


def needs_of(glance: Glance, groups: Sequence[GroupLine]) -> list[Need]:
    """Return what needs somebody now."""
    found = [*_of_store(glance), *_of_workers(glance), *_of_groups(groups), *_of_letters(glance)]
    return sorted(found, key=lambda need: need.level != "bad")


def _of_store(glance: Glance) -> list[Need]:
    needs = []
    if glance.word("poisoned"):
        needs.append(
            Need("bad", "a flush has failed: sends are refused until every process has closed the store", (), {})
        )
    if glance.word("disk_full"):
        needs.append(Need("bad", "the disk is too full: sends are refused", (), {}))
    elif glance.disk_used_ratio() > _DISK_USED:
        needs.append(Need("warn", f"the disk is {glance.disk_used_ratio():.0%} full", (), {}))
    if not glance.has_housekeeper:
        text = (
            "no process keeps house: nothing is flushed, removed or delivered late until a producer or `rmq run` starts"
        )
        needs.append(Need("warn", text, ("workers",), {}))
    return needs


def _of_workers(glance: Glance) -> list[Need]:
    needs = []
    for running in glance.running():
        if running.age_s is not None and running.age_s > _HUNG_AFTER_S:
            place = f"{running.topic} {running.queue_id}:{running.queue_offset}"
            text = f"a handler of {running.group} has run for {running.age_s:,.0f} s on {place} (process {running.pid})"
            needs.append(Need("bad", text, ("groups", running.group), {}))
    for worker in glance.workers():
        if worker.beat_age_s is not None and worker.beat_age_s > _SILENT_AFTER_S:
            text = f"worker {worker.pid} has been silent for {worker.beat_age_s:,.0f} s"
            needs.append(Need("bad", text, ("workers",), {}))
    return needs


def _of_groups(groups: Sequence[GroupLine]) -> list[Need]:
    bad = ("hung", "behind retention", "no members", "a file")
    warn = ("paused", "no owner", "suspended", "flow control")
    return [
        Need(
            "bad" if line.state.startswith(bad) else "warn",
            f"group {line.group}: {line.state}" + (f", {line.lag:,} messages wait" if line.lag else ""),
            ("groups", line.group),
            {},
        )
        for line in groups
        if line.state.startswith(bad + warn)
    ]


def _of_letters(glance: Glance) -> list[Need]:
    counts = DeadLetterCount().by_group(glance, glance.queues())
    return [
        Need("warn", f"{waiting:,} dead letters of group {group}", ("dead-letters",), {"group": group})
        for group, waiting in sorted(counts.items())
        if waiting
    ]
