"""``rmq check``: is a store healthy, is it ready, is its supervisor alive.

A probe is a new process each time, so this command is parsed by ``argparse`` and only reads: neither click nor
the kernel is imported. Its options take part in the environment and in the settings file as those of every command.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rmqclient.health import findings, report
from rmqclient.health.limits import Limits
from rmqclient.store.observe.reading import Reading, Unreadable, left_behind, renamed
from rmqclient.workers.console.environment import unread
from rmqclient.workers.console.settings import Settings, SettingsError, load

_USAGE, _CANNOT_OPEN = 2, 3
"""As :class:`rmqclient.workers.exit_codes.ExitCode`; in Nagios' words CRITICAL and UNKNOWN."""

_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

_EPILOG = """\
Exit codes, with -o text, json and prometheus:
  0  healthy; warnings are no reason to act at once
  1  not healthy: at least one check is critical
  2  wrong usage
  3  there is no store, or it cannot be read
With -o nagios: 0 ok, 1 warning, 2 critical, 3 unknown.

Examples:
  rmq check --store ./store
  rmq check ready --min-ready 4
  rmq check live
  rmq check --group billing --warn 1000 --crit 10000 --age-warn 1m -o nagios
  rmq check -o prometheus > rmq.prom.new && mv rmq.prom.new rmq.prom
"""


class Option(NamedTuple):
    """An option of a command: its long name without dashes, its variables, the strongest first, and its default."""

    name: str
    variables: Sequence[str]
    default: object


def main(arguments: Sequence[str], named: str | None = None) -> int:
    """Run the command with these arguments, print, and return the exit code. ``named`` is the file of ``--config``."""
    try:
        parser = _Parser(load(named))
        for line in unread("check", (each for option in parser.options for each in option.variables), ()):
            print(f"rmq: {line}", file=sys.stderr)  # noqa: T201 - as below
        chosen = parser.parse_args(arguments)
    except SettingsError as error:
        return _fail(str(error), _USAGE)
    except SystemExit as ended:  # argparse has printed help, or what is wrong
        return int(ended.code or 0)
    if not chosen.store:
        told = 'no store: give --store DIR, set RMQ_STORE, or write store = "./store" into rmq.toml'
        return _fail(told, _USAGE)
    if "://" in chosen.store:
        told = "a cluster's brokers answer for themselves: `rmq group ls` tells its lag; check looks at a directory"
        return _fail(told, _CANNOT_OPEN)
    return _checked(chosen)


def options() -> list[Option]:
    """Return the options of the command, to check which variables and settings it reads."""
    return _Parser(Settings()).options


def usual_limits(named: str | None = None) -> Limits:
    """Return the limits of a check without arguments: of the environment, the settings file, then ours.

    ``named`` is the file of ``--config``. Raises SettingsError.
    """
    return _limits(_Parser(load(named)).parse_args([]))


def help_text(width: int | None = None) -> str:
    """Return what ``--help`` prints, in so many columns; without ``width``, in those of the terminal."""
    return _Parser(Settings(), width).format_help()


def _checked(chosen: argparse.Namespace) -> int:
    limits = _limits(chosen)
    looks = {"live": findings.alive, "ready": findings.ready}
    try:
        with Reading(chosen.store) as reading:
            found = looks.get(chosen.what, findings.look)(reading, limits)
    except Unreadable as error:
        lost = [f"{each.state}; {each.remedy}" for each in findings.removed(left_behind(chosen.store))]
        lost += findings.renamed_elsewhere(renamed())
        return _unreadable("; ".join([str(error), *lost]), chosen.output)
    print(report.written(found, chosen.output))  # noqa: T201 - click, whose echo others use, takes longer than the check
    worst = report.worst(found)
    return worst if chosen.output == "nagios" else int(worst == findings.CRITICAL)


def _limits(chosen: argparse.Namespace) -> Limits:
    return Limits(**{name: getattr(chosen, name) for name in Limits._fields if hasattr(chosen, name)})


def _unreadable(reason: str, output: str) -> int:
    if output == "nagios":
        print(f"RMQ UNKNOWN - {reason.replace('|', '/')}")  # noqa: T201 - as above
        return findings.UNKNOWN
    return _fail(reason, _CANNOT_OPEN)


def _fail(reason: str, code: int) -> int:
    print(f"rmq: {reason}", file=sys.stderr)  # noqa: T201 - as above
    return code


class _Parser(argparse.ArgumentParser):
    """Knows the options. Their defaults come from the environment and from the settings file."""

    def __init__(self, settings: Settings, width: int | None = None) -> None:
        super().__init__(
            prog="rmq check",
            description="Say whether a store is healthy, what is stuck, and what to do. Nothing is opened or changed.",
            epilog=_EPILOG,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=width),
        )
        self.options: list[Option] = []
        self._settings = settings
        self._add_what()
        self._add_options(Limits())
        self._refuse_unknown()

    def _add_what(self) -> None:
        self.add_argument(
            "what",
            nargs="?",
            choices=["all", "ready", "live"],
            default="all",
            help="all: every check; ready: the store takes messages and workers are ready; live: the supervisor of "
            "this container watches its workers  [default: all]",
        )

    def _add_options(self, usual: Limits) -> None:
        add = self._add
        add("--store", str, None, "directory of the store  [env: RMQ_STORE]", variables=("RMQ_STORE",))
        add("-o", str, "text", "text, json, nagios or prometheus", name="output", choices=report.FORMATS)
        add("--group", str, usual.group, "only this group")
        add("--warn", int, usual.lag_warn, "messages of lag, for a warning", name="lag_warn")
        add("--crit", int, usual.lag_crit, "messages of lag that are critical", name="lag_crit")
        add("--age-warn", _seconds, usual.age_warn_s, "age of the oldest message, for a warning", name="age_warn_s")
        add("--age-crit", _seconds, usual.age_crit_s, "the same, critical", name="age_crit_s")
        add("--message-age", _seconds, usual.message_age_s, "a handler that runs longer hangs", name="message_age_s")
        add("--beat-age", _seconds, usual.beat_age_s, "a worker silent for longer is critical", name="beat_age_s")
        add("--min-ready", int, usual.min_ready, "workers that must be ready; 0 for stores without `rmq run`")
        add("--dlq-warn", int, usual.dlq_warn, "dead letters of a group, for a warning")
        add("--dlq-crit", int, usual.dlq_crit, "the same, critical")
        add("--dlq-age-warn", _seconds, usual.dlq_age_warn_s, "age of the oldest dead letter", name="dlq_age_warn_s")
        add("--disk-warn", float, usual.disk_warn, "part of the file system in use, 0 to 1, for a warning")
        add("--disk-crit", float, usual.disk_crit, "the same, critical")

    def _refuse_unknown(self) -> None:
        """Raise SettingsError for what the file says of this command, and the command has not."""
        table = self._settings.values.get("check", {})
        known = {each.name for each in self.options}
        strange = [key for key in table if key.replace("_", "-") not in known] if isinstance(table, Mapping) else [""]
        if strange:
            told = ", ".join(f"check.{key}".rstrip(".") for key in strange)
            raise SettingsError(f"{self._settings.path}: rmq has no {told}; `rmq config --all` shows every option")

    def _add(
        self,
        option: str,
        convert: type | object,
        default: object,
        text: str,
        *,
        name: str | None = None,
        choices: Sequence[str] | None = None,
        variables: Sequence[str] = (),
    ) -> None:
        names = [option, "--output"] if option == "-o" else [option]
        word = names[-1].removeprefix("--")
        known = Option(word, (f"RMQ_CHECK_{word.upper().replace('-', '_')}", *variables), default)
        self.options.append(known)
        given = [os.environ.get(each) for each in known.variables]
        found = next((each for each in given if each), None) or self._settings.option(["check"], word)
        shown = "" if default is None else f"  [default: {default:g}]" if isinstance(default, float) else ""
        if default is not None and not shown:
            shown = f"  [default: {default}]"
        self.add_argument(
            *names,
            dest=name or word.replace("-", "_"),
            type=convert,  # type: ignore[arg-type]
            default=default if found is None else str(found),
            choices=choices,
            metavar=None if choices else word.rpartition("-")[2].upper(),
            help=text + shown,
        )


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write 30s, 500ms, 5m, 2h or 3d")
    return float(found[1]) * _UNITS[found[2]]
