"""The command ``rmq``: it assembles the commands, and turns errors into one line and an exit code.

A command is a noun and a verb. Every command imports the store inside its function, so that help is quick.
"""

# ruff: noqa: PLC0415 - imports inside functions, for the reason above

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rmqclient.workers.commands.dead_letters import dlq
from rmqclient.workers.commands.group import group
from rmqclient.workers.commands.message import message, send, tail
from rmqclient.workers.commands.pipeline import pipeline
from rmqclient.workers.commands.running.dashboard import dashboard
from rmqclient.workers.commands.running.metrics import metrics
from rmqclient.workers.commands.running.run import run
from rmqclient.workers.commands.running.schedule import schedule
from rmqclient.workers.commands.running.serve import serve
from rmqclient.workers.commands.running.worker import worker
from rmqclient.workers.commands.store import store
from rmqclient.workers.commands.topic import topic
from rmqclient.workers.commands.transaction import tx
from rmqclient.workers.console import environment
from rmqclient.workers.console.opening import StoreCannotBeOpened, one_line
from rmqclient.workers.console.parameters import STORE
from rmqclient.workers.console.settings import SettingsError, load
from rmqclient.workers.console.tree import Noun, defaults, name_variables
from rmqclient.workers.exit_codes import EXPLAINED, ExitCode

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

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Parse the options before the noun, and read the settings file for those behind it."""
        context = super().make_context(*arguments, **options)
        try:
            settings = load(context.params.get("config"))
        except SettingsError as error:
            raise click.UsageError(str(error), context) from error
        context.default_map = defaults(self, settings)
        return context

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(ExitCode.INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            code = _exit_code_of(error)
            if code is None:
                raise
            click.echo(f"rmq: {one_line(error)}", err=True)
            ctx.exit(code)


@click.command(
    "check",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Say whether a store is healthy, what is stuck, and what to do.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def check(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Say whether a store is healthy. Its options are parsed without click: see workers/entry.py."""
    from rmqclient.workers.commands.looking.check import main as looked

    before = context.find_root().params
    given = () if before.get("root") is None else ("--store", str(before["root"]))
    context.exit(looked([*given, *arguments], before.get("config")))


def _exit_code_of(error: Exception) -> ExitCode | None:
    from rmqclient.errors import HandlerError, InvalidName, QueueError
    from rmqclient.workers.loading import TargetError

    if isinstance(error, StoreCannotBeOpened):
        return ExitCode.STORE_CANNOT_BE_OPENED
    if isinstance(error, TargetError | HandlerError | InvalidName):
        return ExitCode.USAGE
    return ExitCode.FAILED if isinstance(error, QueueError) else None


def main() -> None:
    """Run the command line; leaves by ``SystemExit`` with an :class:`~rmqclient.workers.exit_codes.ExitCode`."""
    rmq(prog_name="rmq")


@click.group(
    cls=_Root,
    epilog=f"{EXPLAINED}\n{EXAMPLES}",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
)
@click.version_option(package_name="rmqclient", prog_name="rmq")
@click.option("--store", "root", type=STORE, help="For the command that follows, as its own --store.")
@click.option(
    "--config", envvar=environment.CONFIG, show_envvar=True, help="File of settings, instead of the one that is found."
)
def rmq(root: Path | str | None, config: str | None) -> None:
    """A message queue without a server: run handlers, look at topics and groups, send and read messages.

    Is it healthy, and what is stuck: rmq check. Live: rmq top. What could be wrong: rmq doctor.
    """
    del root, config  # the command that follows asks for them


for command in (
    check,
    dashboard,
    dlq,
    group,
    message,
    metrics,
    pipeline,
    run,
    schedule,
    send,
    serve,
    store,
    tail,
    topic,
    tx,
    worker,
):
    rmq.add_command(command)
name_variables(rmq)
