"""The values that a person writes after an option, and the options that many commands share."""

from __future__ import annotations

import datetime
import functools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from rmqclient.duration import duration_in, moment_in
from rmqclient.health.limits import part_in
from rmqclient.place import scheme_of
from rmqclient.workers.console import environment
from rmqclient.workers.console.layout import local_time
from rmqclient.workers.console.output import FORMATS, Output
from rmqclient.workers.console.settings import FILE, load

Command = TypeVar("Command", bound=Callable[..., Any])
T = TypeVar("T")


class Store(click.Path):
    """The directory of a store, as a Path, or the URL of a cluster, as it was written."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return a URL as it is. Fails for a path that is a file."""
        return value if scheme_of(value) else super().convert(value, parameter, context)


STORE = Store()
DIRECTORY = click.Path(path_type=Path, file_okay=False)


def duration(text: str) -> float:
    """``30``, ``500ms``, ``10s``, ``5m``, ``2h``, ``3d``, zero or more, in seconds; raises ``click.BadParameter``."""
    return _read(duration_in, text)


def part(text: str) -> float:
    """Return a part of a whole, 0 to 1; raises ``click.BadParameter``."""
    return _read(part_in, text)


def moment(text: str) -> int:
    """Return a time in ms since the epoch, as :func:`moment_in` reads it; raises ``click.BadParameter``."""
    return _read(moment_in, text)


def _read(reading: Callable[[str], T], text: str) -> T:
    try:
        return reading(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def start(text: str) -> str | int:
    """``earliest``, ``latest``, ``-100`` for the last hundred, or a :func:`moment`; raises ``click.BadParameter``."""
    if re.fullmatch(r"earliest|latest|-\d+", text):
        return text
    try:
        return moment(text)
    except click.BadParameter as error:
        raise click.BadParameter(
            f"{text!r}: write earliest, latest, -100 for the last hundred messages, 2h or 90s for so long ago, or "
            "2026-01-31T12:00"
        ) from error


def position(text: str) -> str | int | datetime.datetime:
    """``earliest``, ``latest``, ``1234`` for a queue offset, or a :func:`moment`; raises ``click.BadParameter``."""
    if text in ("earliest", "latest"):
        return text
    if re.fullmatch(r"[0-9]{1,19}", text):
        return int(text)
    try:
        return datetime.datetime.fromtimestamp(moment(text) / 1000, datetime.UTC)
    except click.BadParameter as error:
        raise click.BadParameter(
            f"{text!r}: write earliest, latest, a queue offset, 2h for two hours ago, or 2026-11-20T10:00Z"
        ) from error


def name_and_value(text: str) -> tuple[str, str]:
    """``name=value``; the value may be empty and may contain another ``=``; raises ``click.BadParameter``."""
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise click.BadParameter(f"{text!r}: write name=value")
    return name, value


def address(text: str) -> tuple[str, int]:
    """``host:port`` to listen on, or ``[::1]:port``; port 0 takes a free one. Raises ``click.BadParameter``."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT with a port from 0 to 65535, such as 127.0.0.1:5558")
    return host.strip("[]"), int(port)


def refuse(names: Sequence[str], reason: str) -> None:
    """Raise UsageError if options of these parameters stand on the command line, where they have no effect.

    ``reason`` is the end of the sentence, such as ``without --watch``. Variables and settings are for every form of a
    command, so they may name what one of them does not use.
    """
    context = click.get_current_context()
    found = [
        max(each.opts, key=len) if isinstance(each, click.Option) else each.human_readable_name
        for each in context.command.params
        if each.name in names and context.get_parameter_source(each.name) is ParameterSource.COMMANDLINE
    ]
    if found:
        has, them = ("has", "it") if len(found) == 1 else ("have", "them")
        raise click.UsageError(f"{' and '.join(found)} {has} no effect {reason}: leave {them} out")


def check_range(begin: int | None, end: int | None, names: str = "--since and --until") -> None:
    """Raise UsageError for times in ms of which the first does not lie before the second: nothing lies between."""
    if begin is not None and end is not None and begin >= end:
        times = f"{local_time(begin)} is not before {local_time(end)}"
        raise click.UsageError(f"{names}: {times}, so nothing lies between; 3h is earlier than 2h")


def is_for_this_command() -> bool:
    """Tell whether ``--store`` was given, or its own variable, or a line of the command's table of the settings."""
    context = click.get_current_context()
    name = str(context.info_name)
    match context.get_parameter_source("root"):
        case ParameterSource.COMMANDLINE:
            return True
        case ParameterSource.ENVIRONMENT:
            return bool(os.environ.get(f"{environment.PREFIX}_{name}_STORE".upper()))
        case _:
            return "store" in load(context.find_root().params.get("config_file")).values.get(name, {})


class StoreOption(click.Option):
    """``--store``, which may also stand before the noun: ``rmq --store ./store topic ls``."""

    def consume_value(self, ctx: click.Context, opts: Any) -> Any:
        """Return the value and where it comes from."""
        found = super().consume_value(ctx, opts)
        before = ctx.find_root().params.get("root")
        if found[1] is not ParameterSource.COMMANDLINE and before is not None and ctx.parent is not None:
            return before, ParameterSource.COMMANDLINE
        return found

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value. Raises UsageError, which says how to name a store."""
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter as error:
            raise click.UsageError(
                f'no store: give --store DIR, set {environment.STORE}, or write store = "./store" into {FILE}', ctx
            ) from error


class StoreArgument(click.Argument):
    """The directory of a store as an argument that may be left out: then it is that of ``--store`` of other commands.

    A command with it is for directories alone.
    """

    def __init__(self, declarations: Sequence[str], **settings: Any) -> None:
        super().__init__(declarations, required=False, **settings)

    def consume_value(self, ctx: click.Context, opts: Any) -> Any:
        """Return the directory and where it comes from. Raises UsageError, which says how to name a store."""
        found = super().consume_value(ctx, opts)
        if isinstance(found[0], str) or ctx.resilient_parsing:
            return found
        value = store_of_all(ctx)
        if value is None:
            word = self.make_metavar(ctx).strip("[]")
            reason = f'no store: give {word}, set {environment.STORE}, or write store = "./store" into {FILE}'
            raise click.UsageError(reason, ctx)
        return value, ParameterSource.ENVIRONMENT


def store_of_all(context: click.Context) -> str | None:
    """Return the store that is named for all commands: before the noun, by ``RMQ_STORE`` or in the settings file."""
    root = context.find_root()
    named = root.params.get("root") or os.environ.get(environment.STORE)
    return named or load(root.params.get("config_file")).option([], "store")


with_store = click.option(
    "--store",
    "root",
    cls=StoreOption,
    type=STORE,
    required=True,
    help="Directory of the store, or rocketmq://host:9876.",
)
"""Adds ``--store``; the command gets it as ``root``: a directory as a Path, or a URL as text."""


def with_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-o`` and ``--query``; the command gets them as ``out``, an :class:`Output`."""

    @functools.wraps(command)
    def with_out(*words: Any, output: str, query: str | None, **named: Any) -> Any:
        return command(*words, out=Output(output, query), **named)

    given = click.option("--query", help="JMESPath expression on the output.")
    form = click.option("-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True)
    return form(given(with_out))


def with_rows(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what a command of rows has: ``--where`` and the options of :func:`with_output`."""

    @functools.wraps(command)
    def with_where(*words: Any, where: str | None, out: Output, **named: Any) -> Any:
        return command(*words, out=out._replace(where=where), **named)

    given = click.option("--where", help="Only rows for which this SQL92 holds: \"lag > 100 AND state <> 'idle'\".")
    return with_output(given(with_where))


def with_log_options(command: Command) -> Command:
    """Add ``--log-level`` and ``--log-format``; the command gets them as ``log_level`` and ``log_format``."""
    level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        default="info",
        show_default=True,
    )
    form = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Lines of the log for people, or one JSON object each.",
    )
    return level(form(command))
