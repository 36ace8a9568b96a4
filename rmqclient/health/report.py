"""Report: findings as text for people, JSON for programs, one line for Nagios, and metrics for Prometheus."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from rmqclient.health import words
from rmqclient.health.findings import CRITICAL, LEVELS, OK, RETRIES, Finding

Form: TypeAlias = Callable[[list[Finding]], str]
"""Makes a text of findings, without a line end."""

_MANY = {"lag": "group", "topic": "topic", "handler": "handler"}
"""Subjects of a check of which there can be many."""
_INDENT = " " * 10
_NO_NOTES: Mapping[str, str] = MappingProxyType({})
_LEAST = 40
"""Columns for which lines are broken: with fewer a word would be."""


def worst(findings: list[Finding]) -> int:
    """Return the worst level; UNKNOWN counts for less than WARNING, as a group that nobody knows is no alarm."""
    levels = [finding.level for finding in findings]
    known = [level for level in levels if level <= CRITICAL]
    return max(known, default=OK) or max(levels, default=OK)


def text(findings: list[Finding], *, verbose: bool = False, width: int | None = None) -> str:
    """Return the problems as lines for a person, then what is well in one line, or in a line each with ``verbose``.

    Lines that are longer than ``width`` columns are broken between words.
    """
    shown = [finding for finding in findings if verbose or finding.level]
    lines = [line(LEVELS[each.level], _subject(each), each.state, each.remedy) for each in shown]
    if len(shown) < len(findings):
        good = [finding for finding in findings if finding.level == OK]
        lines.append(line(LEVELS[OK], well((each.check for each in good), {"lag": words.retries(_waiting(good))})))
    return "\n".join(broken(each, width) for each in lines)


def well(checks: Iterable[str], notes: Mapping[str, str] = _NO_NOTES) -> str:
    """Return the checks that found nothing in a few words, each with its note: ``107 groups, store, slots``."""
    counted = Counter(checks).items()
    return ", ".join(_counted(check, n) + (f" ({note})" if (note := notes.get(check)) else "") for check, n in counted)


def _waiting(findings: Iterable[Finding]) -> dict[str, int]:
    return {each.subject: int(value.value) for each in findings for value in each.values if value.name == RETRIES}


def _counted(check: str, count: int) -> str:
    return f"{count:,} {_MANY[check]}{'s' * (count > 1)}" if check in _MANY else check


def broken(line: str, width: int | None) -> str:
    """Return a line in several, each of at most ``width`` columns, all but the first indented; words stay whole.

    A terminal of fewer than 40 columns breaks them where it ends.
    """
    if width is None or len(line) <= (width := max(width, _LEAST)):
        return line
    return "\n".join(textwrap.wrap(line, width, subsequent_indent=_INDENT, break_on_hyphens=False))


def line(level: str, subject: str, state: str = "", remedy: str = "") -> str:
    """Return what was found for a person, as ``critical  hung  hung 40 s in orders 2:7731  -> what to do``."""
    said = f"  {state}{f'  -> {remedy}' if remedy else ''}" if state else ""
    return f"{level:<8}  {subject:<20}{said}".rstrip()


def _subject(finding: Finding) -> str:
    return f"{finding.check} {finding.subject}".rstrip()


def row(finding: Finding) -> dict[str, object]:
    """Return one finding for a program."""
    return {
        "check": finding.check,
        "subject": finding.subject,
        "level": LEVELS[finding.level],
        "state": finding.state,
        "remedy": finding.remedy,
        **{each.name: each.value for each in finding.values},
    }


def as_json(findings: list[Finding]) -> str:
    """Return the worst level and every finding as one JSON document."""
    found = {"status": LEVELS[worst(findings)], "findings": [row(finding) for finding in findings]}
    return json.dumps(found, indent=2)


def nagios(findings: list[Finding]) -> str:
    """Return one line by the Nagios plugin guidelines: the level, what is wrong, and the numbers behind a bar."""
    wrong = [each for each in findings if each.level] or findings
    said = "; ".join(f"{_subject(each)} {each.state}" for each in wrong) or "no finding"
    values = [
        f"{_label(finding, value.name)}={value.value:g};{_number(value.warn)};{_number(value.crit)}"
        for finding in findings
        for value in finding.values
    ]
    return f"RMQ {LEVELS[worst(findings)].upper()} - {said.replace('|', '/')} | {' '.join(values)}"


def _label(finding: Finding, name: str) -> str:
    return f"'{name} {finding.subject}'" if finding.subject else name


def _number(limit: float | None) -> str:
    return "" if limit is None else f"{limit:g}"


def prometheus(findings: list[Finding]) -> str:
    """Return the levels and the numbers behind them in Prometheus' text format, for a text file collector."""
    lines = [
        "# HELP rmq_check_status Level of a check: 0 ok, 1 warning, 2 critical, 3 unknown.",
        "# TYPE rmq_check_status gauge",
    ]
    checks: dict[tuple[str, str], int] = {}
    families: dict[str, list[str]] = {}
    for finding in findings:
        key = finding.check, finding.subject
        checks[key] = max(checks.get(key, OK), finding.level)
        for value in finding.values:
            labels = f'{{subject="{_escaped(finding.subject)}"}}' if finding.subject else ""
            families.setdefault(value.name, []).append(f"rmq_check_{value.name}{labels} {value.value:g}")
    lines += [
        f'rmq_check_status{{check="{check}",subject="{_escaped(subject)}"}} {level}'
        for (check, subject), level in checks.items()
    ]
    for name, samples in families.items():
        lines += [f"# HELP rmq_check_{name} The number behind the check.", f"# TYPE rmq_check_{name} gauge", *samples]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


FORMATS: dict[str, Form] = {"text": text, "json": as_json, "nagios": nagios, "prometheus": prometheus}
