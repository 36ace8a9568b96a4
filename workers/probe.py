"""Probe: ``rmq check`` as a service manager starts it again and again, without click and without the kernel.

The options stand here once. :mod:`rmqclient.workers.commands.check` makes the command of the tree of them, with help,
completion, ``--query`` and ``--watch``; a command line that needs one of these, or has a mistake, is left to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rmqclient.duration import duration_in
from rmqclient.health import findings, report
from rmqclient.health.limits import Limits, part_in
from rmqclient.store.observe.processes import look, renamed
from rmqclient.store.observe.reading import Reading
from rmqclient.store.observe.shared_file import Unreadable
from rmqclient.workers.console import environment, terminal
from rmqclient.workers.console.settings import SettingsError, load

LOOKS = {"all": findings.look, "ready": findings.ready, "live": findings.alive}
LIMITED = {"ready": {"beat-age", "min-ready", "disk-warn", "disk-crit"}, "live": {"beat-age"}}
"""The options by which the short looks are limited."""

_FAILED, _CANNOT_OPEN = 1, 3
"""As :class:`rmqclient.workers.exit_codes.ExitCode`, whose module takes time to import."""


class Limit(NamedTuple):
    """An option of the command that is one of the limits."""

    name: str
    """Long, without dashes."""
    field: str
    """Of :class:`rmqclient.health.limits.Limits`, whose default it has."""
    read: Callable[[str], Any]
    """Raises ValueError."""
    help: str

    @property
    def default(self) -> Any:
        """What it is when nobody gives it."""
        return getattr(Limits(), self.field)


LIMITS = (
    Limit("group", "group", str, "Only this group."),
    Limit("warn", "lag_warn", int, "Messages of lag, for a warning."),
    Limit("crit", "lag_crit", int, "Messages of lag that are critical."),
    Limit("age-warn", "age_warn_s", duration_in, "Age of the oldest message, for a warning."),
    Limit("age-crit", "age_crit_s", duration_in, "The same, critical."),
    Limit("message-age", "message_age_s", duration_in, "A handler that runs longer hangs."),
    Limit("beat-age", "beat_age_s", duration_in, "A worker silent for longer is critical."),
    Limit("min-ready", "min_ready", int, "Workers that must be ready; 0 for stores without `rmq run`."),
    Limit("dlq-warn", "dlq_warn", int, "Dead letters of a group, for a warning."),
    Limit("dlq-crit", "dlq_crit", int, "The same, critical."),
    Limit("dlq-age-warn", "dlq_age_warn_s", duration_in, "Age of the oldest dead letter, for a warning."),
    Limit("disk-warn", "disk_warn", part_in, "Part of the file system in use, 0 to 1, for a warning."),
    Limit("disk-crit", "disk_crit", part_in, "The same, critical."),
)

_QUICK: Mapping[str, Callable[[str], Any]] = {
    "store": str,
    "output": str,
    **{each.name: each.read for each in LIMITS},
}
"""What is read here, by the long name of its option."""
_SHORT = {"-o": "output"}


def main(arguments: Sequence[str]) -> int | None:
    """Run the command with these arguments, print, and return its exit code; None if it is left to the tree."""
    found = _read(arguments)
    if found is None or "://" in found.get("store", "://") or found.get("output", "text") not in report.FORMATS:
        return None
    limits = Limits(**{each.field: found[each.name] for each in LIMITS if each.name in found})
    if any(limits.contradictions()):
        return None
    for line in environment.unread("check", (f"RMQ_CHECK_{name.upper().replace('-', '_')}" for name in _QUICK), ()):
        print(f"rmq: {line}", file=sys.stderr)  # noqa: T201 - click's echo takes longer than the check
    form = found.get("output", "text")
    what = found["what"]
    written = as_text(what) if form == "text" else report.FORMATS[form]
    return checked(what, found["store"], limits, written, is_for_nagios=form == "nagios")


def as_text(what: str, *, verbose: bool = False) -> report.Form:
    """Return how a person reads what one of ``LOOKS`` finds: of the short ones each finding is shown."""
    width = terminal.columns()
    return lambda found: report.text(found, verbose=verbose or what != "all", width=width)


def checked(
    what: str,
    root: str,
    limits: Limits,
    written: report.Form,
    *,
    is_for_nagios: bool,
    holds: Callable[[findings.Finding], bool] | None = None,
) -> int:
    """Look at a store by one of ``LOOKS``, print what ``written`` makes of it, and return the exit code.

    Both tell of the findings for which ``holds`` holds, and of no other.
    """
    try:
        with Reading(root) as reading:
            found = list(filter(holds, LOOKS[what](reading, limits)))
    except Unreadable as error:
        lost = [f"{each.state}; {each.remedy}" for each in findings.removed(look(root).left_behind)]
        reason = "; ".join([str(error), *lost, *findings.renamed_elsewhere(renamed())])
        if is_for_nagios:
            print(f"RMQ UNKNOWN - {reason.replace('|', '/')}")  # noqa: T201 - click's echo takes longer than the check
            return findings.UNKNOWN
        print(f"rmq: {reason}", file=sys.stderr)  # noqa: T201 - as above
        return _CANNOT_OPEN
    if text := written(found):
        print(text)  # noqa: T201 - as above
    if is_for_nagios:
        return report.worst(found)
    return _FAILED if any(each.level >= findings.CRITICAL for each in found) else 0


def _read(arguments: Sequence[str]) -> dict[str, Any] | None:
    """Return what the command line, the variables and the settings give, the first of them first; else None."""
    given: dict[str, str] = {}
    words = list(arguments)
    what = words.pop(0) if words and words[0] in LOOKS else "all"
    while words:
        name, joined, value = words.pop(0).partition("=")
        name = _SHORT.get(name) or (name.removeprefix("--") if name.startswith("--") else "")
        if name not in _QUICK or not (joined or words):
            return None
        given[name] = value if joined else words.pop(0)
    if what in LIMITED and given.keys() - LIMITED[what] - {"store", "output"}:
        return None
    try:
        return {"what": what, **{name: _QUICK[name](text) for name, text in {**_around(), **given}.items()}}
    except (SettingsError, KeyError, ValueError):
        return None


def _around() -> dict[str, str]:
    """Return what variables and settings give. Raises SettingsError, and KeyError for what is not read here."""
    settings = load()
    table = settings.values.get("check", {})
    if not isinstance(table, Mapping):
        raise KeyError("check")
    found = {name.replace("_", "-"): str(value) for name, value in table.items()}
    if store := settings.option(["check"], "store"):
        found["store"] = str(store)
    if store := os.environ.get("RMQ_STORE"):
        found["store"] = store
    prefix = "RMQ_CHECK_"
    variables = {name: value for name, value in os.environ.items() if name.startswith(prefix) and value}
    found |= {name.removeprefix(prefix).lower().replace("_", "-"): value for name, value in variables.items()}
    if strange := found.keys() - _QUICK.keys():
        raise KeyError(*strange)
    return found
