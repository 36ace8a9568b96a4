"""Report: findings as text for people, JSON for programs, one line for Nagios, and metrics for Prometheus."""

from __future__ import annotations

import json

from rmqclient.health.findings import CRITICAL, LEVELS, OK, Finding

FORMATS = ("text", "json", "nagios", "prometheus")


def worst(findings: list[Finding]) -> int:
    """Return the worst level; UNKNOWN counts for less than WARNING, as a group that nobody knows is no alarm."""
    levels = [finding.level for finding in findings]
    known = [level for level in levels if level <= CRITICAL]
    return max(known, default=OK) or max(levels, default=OK)


def written(findings: list[Finding], output: str) -> str:
    """Return the findings in one of ``FORMATS``, without a line end."""
    return {"json": _json, "nagios": _nagios, "prometheus": _prometheus}.get(output, _text)(findings)


def line(finding: Finding) -> str:
    """Return one finding for a person, as ``critical  hung  hung 40 s in orders 2:7731  -> what to do``."""
    subject = f"{finding.check} {finding.subject}".rstrip()
    remedy = f"  -> {finding.remedy}" if finding.remedy else ""
    return f"{LEVELS[finding.level]:<8}  {subject:<20}  {finding.state}{remedy}"


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


def _text(findings: list[Finding]) -> str:
    return "\n".join(map(line, findings))


def _json(findings: list[Finding]) -> str:
    found = {"status": LEVELS[worst(findings)], "findings": [row(finding) for finding in findings]}
    return json.dumps(found, indent=2)


def _nagios(findings: list[Finding]) -> str:
    """Return one line by the Nagios plugin guidelines: the level, what is wrong, and the numbers behind a bar."""
    wrong = [each for each in findings if each.level] or findings
    said = "; ".join(f"{each.check} {each.subject}".rstrip() + f" {each.state}" for each in wrong)
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


def _prometheus(findings: list[Finding]) -> str:
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
