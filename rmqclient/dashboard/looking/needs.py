"""What needs somebody: the findings of ``rmq check`` that are not well, each with the page where it is put right."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqclient.health import findings
from rmqclient.health.findings import Finding
from rmqclient.health.limits import Limits
from rmqclient.store.observe.observation import Observation
from rmqclient.store.observe.reading import Reading

_PAGES = {"workers": "workers", "hung": "workers", "timer": "schedules", "tx": "transactions"}


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that somebody should look at."""

    level: str
    """``bad`` or ``warn``."""
    text: str
    remedy: str
    path: tuple[str, ...]
    """Parts of the path of the page."""
    query: dict[str, str] = field(default_factory=dict)


def needs_of(reading: Reading, seen: Observation) -> list[Need]:
    """Return what needs somebody now, the worst first. How many workers there should be, only `rmq check` is told."""
    found = findings.look_at(reading, seen, Limits(min_ready=0))
    return [_need(each) for each in found if each.level != findings.OK]


def _need(finding: Finding) -> Need:
    level = "bad" if finding.level == findings.CRITICAL else "warn"
    if finding.check == "lag":
        return Need(level, f"{finding.subject}: {finding.state}", finding.remedy, ("groups", finding.subject))
    if finding.check == "dlq":
        query = {"group": finding.subject}
        return Need(level, f"{finding.subject}: {finding.state}", finding.remedy, ("dead-letters",), query)
    path = (_PAGES[finding.check],) if finding.check in _PAGES else ()
    return Need(level, f"{finding.check}: {finding.state}", finding.remedy, path)
