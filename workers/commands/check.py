"""``rmq check``: is a store healthy, is it ready, is its supervisor alive.

The options and the look are those of :mod:`rmqclient.workers.probe`, which runs without this module whenever it can.
"""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqclient.duration import duration_in
from rmqclient.health import report
from rmqclient.health.limits import part_in
from rmqclient.place import scheme_of
from rmqclient.workers import probe
from rmqclient.workers.console.output import FORMATS, Output
from rmqclient.workers.console.parameters import duration, part, refuse, with_store
from rmqclient.workers.console.watching import with_watch
from rmqclient.workers.console.where import RowCondition

if TYPE_CHECKING:
    from rmqclient.health.findings import Finding
    from rmqclient.health.limits import Limits

Command = TypeVar("Command", bound=Callable[..., Any])

_READ_BY: dict[Any, Callable[[str], float]] = {duration_in: duration, part_in: part}
"""What tells a person why a text is refused, by what reads it without click."""

_OF_REPORTS = ("text", "nagios", "prometheus")
_EPILOG = """\b
Exit codes: 0 healthy, or nothing worse than a warning; 1 a check is critical, or --group is unknown; 2 wrong usage;
3 the store cannot be read. With -o nagios: 0 ok, 1 warning, 2 critical, 3 unknown.
"""


def _parameter(limit: probe.Limit) -> str:
    return "group_name" if limit.name == "group" else limit.field


def _with_limits(command: Command) -> Command:
    for each in reversed(probe.LIMITS):
        is_duration = each.read is duration_in
        shown = "" if each.default is None else f"{each.default:g}"
        command = click.option(
            f"--{each.name}",
            _parameter(each),
            type=_READ_BY.get(each.read, each.read),
            default=(shown or None) if is_duration else each.default,
            metavar=each.name.rpartition("-")[2].upper(),
            help=each.help + (f"  [default: {shown}]" if shown else ""),
        )(command)
    return command


@click.command(epilog=_EPILOG)
@click.argument("what", type=click.Choice(list(probe.LOOKS)), default="all")
@with_store
@click.option(
    "-o", "--output", type=click.Choice([*_OF_REPORTS, *FORMATS]), default="text", show_default=True, help="Form."
)
@click.option("--query", help="JMESPath expression on the output of -o json.")
@click.option("--where", help="Only findings for which this SQL92 holds, such as \"subject = 'billing'\".")
@click.option("-v", "--verbose", is_flag=True, help="Show what is well, too, each on its line.")
@with_watch
@_with_limits
def check(
    what: str,
    root: Path | str,
    output: str,
    query: str | None,
    where: str | None,
    verbose: bool,
    **given: Any,
) -> None:
    """Say whether a store is healthy, what is stuck, and what to do. Nothing is opened or changed.

    ALL is every check; READY: the store takes messages and workers are ready; LIVE: the supervisor of this container
    watches its workers. Problems come first, the worst on top; what is well is one line.
    """
    if scheme_of(root):
        from rmqclient.workers.console.opening import StoreCannotBeOpened

        reason = "a cluster's brokers answer for themselves: `rmq group ls` tells its lag; check looks at a directory"
        raise StoreCannotBeOpened(reason)  # 1 would say that something is critical
    if what in probe.LIMITED:
        others = [_parameter(each) for each in probe.LIMITS if each.name not in probe.LIMITED[what]]
        refuse(others, f"on `rmq check {what}`")
    if query and output in ("nagios", "prometheus"):
        raise click.UsageError(f"--query is for -o json and the like: -o {output} has its own form")
    out = Output("json" if output == "text" and query else output, query)
    written = _form(out, probe.as_text(what, verbose=verbose))
    is_for_nagios = output == "nagios"
    condition = None if where is None else RowCondition(where)
    holds = None if condition is None else lambda found: condition.holds(report.row(found))
    code = probe.checked(what, str(root), _limits(given), written, is_for_nagios=is_for_nagios, holds=holds)
    if condition is not None and (note := condition.note(is_for_people=out.form in ("text", "table"))):
        click.echo(note, err=True)
    click.get_current_context().exit(code)


def usual_limits(context: click.Context) -> Limits:
    """Return the limits of a check without arguments: of the environment, the settings file, then ours.

    ``context`` is that of the whole tree. Raises ``click.UsageError``.
    """
    from rmqclient.workers.console.settings import SettingsError, load
    from rmqclient.workers.console.tree import defaults, unknown

    try:
        settings = load(context.params.get("config_file"))
        if strange := unknown(command := _itself(context), settings.values.get("check", {}), ("check",)):
            raise SettingsError(f"{settings.path}: rmq has no {', '.join(strange)}; `rmq config --all` shows them all")
        usual = defaults(command, ("check",), settings)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    made = click.Context(command, parent=context, info_name="check", default_map=usual)
    command.parse_args(made, ["--store", "."])
    return _limits(made.params)


def _itself(context: click.Context) -> click.Command:
    """Return this command with the variables that it has in the tree."""
    assert isinstance(context.command, click.Group)
    return context.command.commands["check"]


def _limits(given: dict[str, Any]) -> Limits:
    from rmqclient.health.limits import Limits

    named = {"group": given.get("group_name"), **{name: given.get(name) for name in Limits._fields if name != "group"}}
    limits = Limits(**{name: value for name, value in named.items() if value is not None})
    options = {each.field: each.name for each in probe.LIMITS}
    for warn, crit in limits.contradictions():
        raise click.UsageError(
            f"--{options[crit]} {getattr(limits, crit):g} is below --{options[warn]} {getattr(limits, warn):g}, "
            "which would never warn: give both"
        )
    return limits


def _form(out: Output, text: report.Form) -> report.Form:
    def of_output(found: list[Finding]) -> str:
        return out.text(json.loads(report.as_json(found)), rows=[*map(report.row, found)])

    forms = {**report.FORMATS, "text": text}
    return of_output if out.query is not None else forms.get(out.form, of_output)
