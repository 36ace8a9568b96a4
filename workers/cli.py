"""The command ``rmq``: it assembles the commands, and turns errors into one line and an exit code.

A command is a noun and a verb. Its module is imported when it is used, and imports the store inside its function.
"""

# ruff: noqa: PLC0415 - imports inside functions, for the reason above

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from rmqclient.workers import interrupts
from rmqclient.workers.console import environment
from rmqclient.workers.console.opening import StoreCannotBeOpened, one_line
from rmqclient.workers.console.parameters import STORE
from rmqclient.workers.console.settings import Settings, SettingsError, load
from rmqclient.workers.console.tree import (
    ALIASES,
    Commands,
    Noun,
    all_variables,
    defaults,
    leaves,
    mark_optional,
    name_variables,
    unknown,
)
from rmqclient.workers.exit_codes import EXPLAINED, ExitCode

_OF_THEIR_NAME = (
    "bench", "cheat", "check", "completion", "config", "dashboard", "dev", "doctor", "events", "group", "message",
    "metrics", "pipeline", "replica", "run", "schedule", "send", "serve", "sql", "store", "tail", "top", "topic",
    "worker",
)  # fmt: skip
HOMES = {name: name for name in _OF_THEIR_NAME} | {"dlq": "dead_letters", "tx": "transaction"}
"""The module of each command, below :mod:`rmqclient.workers.commands`; the command has the same name there."""

EXAMPLES = """\b
Examples:
  rmq run shop:app --processes 4
  rmq send orders '{"id": 7}' --tags paid --key 7
  rmq tail orders --from -100 --no-follow -o jsonl
  rmq message find orders 7 --since 2h
  rmq topic table prices --key AAPL
  rmq group seek billing orders --to 2h --dry-run
  rmq group ls -o json --query '[?lag > `1000`].group'
  rmq store verify ./store
"""


class _Root(Noun):
    """The whole tree, with the settings of a file below it.

    An error that is raised on purpose becomes one line and an exit code; any other error shows its trace.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that follows; its options have what the settings file says."""
        name, command, others = super().resolve_command(ctx, args)
        if name is not None and command is not None:
            try:
                ctx.default_map = {name: self._settings(name, command, load(ctx.params.get("config_file")))}
            except SettingsError as error:
                raise click.UsageError(str(error), ctx) from error
            if not ctx.resilient_parsing:  # a completion tells nothing
                for line in environment.unread(name, all_variables(command, (name,)), HOMES):
                    click.echo(f"rmq: {line}", err=True)
        return name, command, others

    def _settings(self, name: str, command: click.Command, settings: Settings) -> dict[str, Any]:
        """Return what the file says for a command. Raises SettingsError for what it cannot mean."""
        if strange := self._unknown(name, command, settings):
            raise SettingsError(
                f"{settings.path}: rmq has no {', '.join(strange)}; `rmq config --all` shows every option"
            )
        return defaults(command, (name,), settings)

    def _unknown(self, name: str, command: click.Command, settings: Settings) -> list[str]:
        """Return what the file has, and neither this command nor the whole tree; of all commands for `rmq config`."""
        tables = dict(settings.values)
        if isinstance(tables.get("store"), str):
            del tables["store"]  # the store of all commands, and no table of `rmq store`
        if name == "config":
            return unknown(self, tables)
        strange = [each for each in tables if each not in {*HOMES, *ALIASES}]
        return strange + unknown(command, tables.get(name, {}), (name,))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line. An error begins with ``rmq:``, whatever found it."""
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            if not standalone_mode:
                raise
            _show(error)
            sys.exit(error.exit_code)
        except click.Abort:
            if not standalone_mode:
                raise
            click.echo("rmq: nothing was changed", err=True)
            sys.exit(ExitCode.FAILED)
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else ExitCode.OK)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with interrupts.raised():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(ExitCode.INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except UnicodeEncodeError as error:  # bytes of the command line that are no text
            raise click.UsageError(f"{error.object!r} is not UTF-8: give a text", ctx) from error
        except Exception as error:
            if interrupts.is_behind(error):
                ctx.exit(ExitCode.INTERRUPTED)
            code = _exit_code_of(error)
            if code is None:
                raise
            click.echo(f"rmq: {one_line(error)}", err=True)
            ctx.exit(code)


def _show(error: click.ClickException) -> None:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"{error.ctx.get_usage()}\n`{error.ctx.command_path} --help` explains it.\n", err=True)
    click.echo(f"rmq: {error.format_message()}", err=True)


def _exit_code_of(error: Exception) -> ExitCode | None:
    from rmqclient.errors import HandlerError, InvalidName, QueueError, StoreReplaced
    from rmqclient.workers.loading import TargetError

    if isinstance(error, StoreCannotBeOpened | StoreReplaced):
        return ExitCode.STORE_CANNOT_BE_OPENED
    if isinstance(error, TargetError | HandlerError | InvalidName):
        return ExitCode.USAGE
    return ExitCode.FAILED if isinstance(error, QueueError) else None


def _imported(name: str) -> click.Command:
    """Import a command, and give it what it has because it belongs to the tree."""
    from rmqclient.workers.commands.cheat import add_examples
    from rmqclient.workers.commands.completion import complete_names

    command: click.Command = getattr(_home(name), name)
    for leaf in leaves(command, (name,)):
        name_variables(leaf)
        mark_optional(leaf.command)
        complete_names(leaf)
        if leaf.command is not command:
            add_examples(leaf.command, leaf.words)
    add_examples(command, (name,))
    return command


def _home(name: str) -> ModuleType:
    return importlib.import_module(f"rmqclient.workers.commands.{HOMES[name]}")


def main() -> None:
    """Run the command line; leaves by ``SystemExit`` with an :class:`~rmqclient.workers.exit_codes.ExitCode`."""
    rmq(prog_name="rmq")


@click.group(
    cls=_Root,
    commands=Commands(HOMES, _imported),
    epilog=f"{EXPLAINED}\n{EXAMPLES}",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
)
@click.version_option(package_name="rmqclient", prog_name="rmq")
@click.option("--store", "root", type=STORE, help="For the command that follows, as its own --store. Else: RMQ_STORE.")
@click.option(
    "--config",
    "config_file",
    envvar=environment.CONFIG,
    show_envvar=True,
    help="File of settings, instead of the one that is found.",
)
def rmq(root: Path | str | None, config_file: str | None) -> None:
    """A message queue without a server: run handlers, inspect topics and groups, send and read messages.

    Health and stuck work: rmq check. Live view: rmq top. Diagnosis: rmq doctor.
    """
    del root, config_file  # the command that follows asks for them
