"""The command ``rmq``: it assembles the commands, and turns errors into one line and an exit code.

A command is a noun and a verb. Every command imports the store inside its function, so that help is quick.
"""

# ruff: noqa: PLC0415 - imports inside functions, for the reason above

from __future__ import annotations

from typing import Any

import click

from rmqclient.workers.commands.dead_letters import dlq
from rmqclient.workers.commands.group import group
from rmqclient.workers.commands.message import message, send, tail
from rmqclient.workers.commands.pipeline import pipeline
from rmqclient.workers.commands.running.dashboard import dashboard
from rmqclient.workers.commands.running.run import run
from rmqclient.workers.commands.running.schedule import schedule
from rmqclient.workers.commands.running.serve import serve
from rmqclient.workers.commands.running.worker import worker
from rmqclient.workers.commands.store import store
from rmqclient.workers.commands.topic import topic
from rmqclient.workers.commands.transaction import tx
from rmqclient.workers.console import environment
from rmqclient.workers.console.opening import StoreCannotBeOpened, one_line
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


class _OneLineErrors(click.Group):
    """Turns an error that is raised on purpose into one line and an exit code; any other error shows its trace."""

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
    cls=_OneLineErrors,
    epilog=f"{EXPLAINED}\n{EXAMPLES}",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": environment.PREFIX,
        "max_content_width": 100,
    },
)
@click.version_option(package_name="rmqclient", prog_name="rmq")
def rmq() -> None:
    """A message queue without a server: run handlers, look at topics and groups, send and read messages."""


for command in (dashboard, dlq, group, message, pipeline, run, schedule, send, serve, store, tail, topic, tx, worker):
    rmq.add_command(command)
