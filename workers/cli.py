"""The command ``rmq``.

Commands are a noun and a verb. What touches the store is imported inside the command that needs it: help is quick.
This is the only module that reads the environment (an :class:`rmqclient.App` reads RMQ_STORE for itself): every option
is also a variable, ``RMQ_RUN_PROCESSES`` for ``rmq run --processes``.
"""

# ruff: noqa: PLC0415 - imports inside commands, for the reason above

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.commands.archive import store_archive
from rmqclient.workers.commands.assignment import assignment
from rmqclient.workers.commands.dead_letters import dlq
from rmqclient.workers.commands.group import group
from rmqclient.workers.commands.group_info import group_info
from rmqclient.workers.commands.pipeline import pipeline
from rmqclient.workers.commands.schedule import schedule
from rmqclient.workers.commands.table import topic_table
from rmqclient.workers.commands.transaction import tx
from rmqclient.workers.console import status
from rmqclient.workers.console.opening import StoreCannotBeOpened, one_line, opening
from rmqclient.workers.console.output import write
from rmqclient.workers.console.parameters import (
    DIRECTORY,
    duration,
    moment,
    name_and_value,
    start,
    with_output,
    with_store,
)
from rmqclient.workers.exit_codes import ExitCode

if TYPE_CHECKING:
    from rmqclient import App
    from rmqclient.workers.processes.worker_life import Limits

EPILOG = """\b
Exit codes:
  0    ok
  1    failed
  2    wrong usage, or the application cannot be imported
  3    the store cannot be opened
  4    a group whose members have another subscription does not let the workers in
  5    every worker is in a crash loop
  130  interrupted: the second Ctrl-C of run, the first of any other command

\b
Examples:
  rmq run shop:app --processes 4
  rmq send orders '{"id": 7}' --tags paid --key 7
  rmq tail orders --from -100 --no-follow -o jsonl
  rmq message find orders 7 --since 2h
  rmq topic table prices --key AAPL
  rmq group seek billing orders --to 2h --dry-run
  rmq group ls -o json --query '[?lag > `1000`].group'
"""


class _OneLineErrors(click.Group):
    """Turns what is raised on purpose into one line and an exit code; anything else is a bug and shows its trace."""

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
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "RMQ", "max_content_width": 100},
)
@click.version_option(package_name="rmqclient", prog_name="rmq")
def rmq() -> None:
    """A message queue without a server: run handlers, look at topics and groups, send and read messages."""


rmq.add_command(dlq)
rmq.add_command(pipeline)
rmq.add_command(schedule)
rmq.add_command(tx)


@rmq.command(epilog=EPILOG)
@click.argument("target")
@click.option("--processes", type=click.IntRange(min=1), help="Worker processes.  [default: one per usable CPU]")
@click.option("--store", "root", type=DIRECTORY, help="Instead of the App's own.")
@click.option("--shutdown-timeout", type=duration, default="30s", show_default=True, help="To finish after TERM.")
@click.option("--time-limit", type=duration, default="15m", show_default=True, help="For one message; 0 for none.")
@click.option("--beat-timeout", type=duration, default="30s", show_default=True, help="For a worker that is silent.")
@click.option(
    "--member-name",
    default="worker",
    show_default=True,
    help="Workers are NAME-1, NAME-2 and so on of broadcast groups.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    show_default=True,
)
def run(
    target: str,
    processes: int | None,
    root: Path | None,
    shutdown_timeout: float,
    time_limit: float,
    beat_timeout: float,
    member_name: str,
    log_level: str,
) -> None:
    """Run the handlers and schedules of TARGET in worker processes.

    TARGET is module:attribute, with the working directory on the path, or file.py:attribute.

    TERM and the first Ctrl-C let the messages in flight finish; the second Ctrl-C kills the workers. A worker that dies
    or hangs is replaced. TTIN and TTOU add and remove a worker.
    """
    from rmqclient.workers.loading import load_app
    from rmqclient.workers.processes.worker import configure_logging
    from rmqclient.workers.processes.worker_life import Limits

    configure_logging(log_level.upper())
    app = load_app(target)
    limits = Limits(
        shutdown_timeout_s=shutdown_timeout,
        message_time_limit_s=time_limit or float("inf"),
        beat_timeout_s=beat_timeout,
    )
    sys.exit(_supervise(app, root or app.root, processes or _usable_cpus(), limits, log_level.upper(), member_name))


def _supervise(app: App, root: Path, processes: int, limits: Limits, log_level: str, member_name: str) -> ExitCode:
    from rmqclient import admin
    from rmqclient.groups.worker_table import WorkerTable
    from rmqclient.names import check_member
    from rmqclient.workers import handler_transfer
    from rmqclient.workers.processes import supervisor, worker
    from rmqclient.workers.processes.child import start_fork_server
    from rmqclient.workers.processes.signals import SignalPipe

    check_member(f"{member_name}-1")
    boot = worker.Boot(
        root=root,
        config=app.config,
        transfer=handler_transfer.transfer(app),
        slot=0,
        drain_timeout_s=limits.drain_timeout_s,
        log_level=log_level,
    )
    start_fork_server()  # before the store and the housekeeper, which may start threads
    with (
        SignalPipe(*supervisor.SIGNALS) as signal_pipe,
        opening(root, lambda: admin.open_store(root, app.config)) as store,
    ):
        durability = store.config.durability.value
        banner = status.banner(store.root, app.handlers, processes=processes, durability=durability, crons=app.crons)
        click.echo(banner, err=True)
        signal_pipe.install()  # from here until the store is closed no signal interrupts anything
        admin.prefer_as_housekeeper(store)
        return supervisor.Supervisor(
            WorkerTable(store), boot, signal_pipe, processes=processes, limits=limits, member_name=member_name
        ).run()


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0))


@rmq.group()
def topic() -> None:
    """List, describe and make topics."""


@topic.command("ls")
@with_store
@with_output
def topic_ls(root: Path, output: str, query: str | None) -> None:
    """All topics with their number of queues and messages."""
    from rmqclient import admin

    with opening(root, lambda: admin.open_store(root, create=False)) as store:
        write([status.topic_row(info) for info in admin.topics(store)], output=output, query=query)


@topic.command("info")
@click.argument("topic_name", metavar="TOPIC")
@with_store
@with_output
def topic_info(topic_name: str, root: Path, output: str, query: str | None) -> None:
    """The queues of TOPIC and their offsets."""
    from rmqclient import admin

    with opening(root, lambda: admin.open_store(root, create=False)) as store:
        info = admin.topic_info(store, topic_name)
        write(status.topic_detail(info), output=output, query=query, rows=status.queue_rows(info))


@topic.command("create")
@click.argument("topic_name", metavar="TOPIC")
@click.option("--queues", type=click.IntRange(min=1), default=4, show_default=True)
@click.option(
    "--cleanup-policy",
    type=click.Choice(["delete", "compact"]),
    help="compact keeps the latest message of each key.  [default: delete]",
)
@with_store
@with_output
def topic_create(
    topic_name: str, queues: int, cleanup_policy: str | None, root: Path, output: str, query: str | None
) -> None:
    """Make TOPIC; the store is made too if there is none."""
    from rmqclient import admin

    with opening(root, lambda: admin.open_store(root)) as store:
        info = admin.create_topic(store, topic_name, queues, cleanup_policy)
        write(status.topic_detail(info), output=output, query=query, rows=status.queue_rows(info))


topic.add_command(topic_table)
rmq.add_command(group)


group.add_command(assignment)
group.add_command(group_info)


@rmq.group()
def message() -> None:
    """Find messages by id, by key and by time."""


@message.command("show")
@click.argument("message_id", metavar="ID")
@click.option("--topic", "topic_name", help="Look only there.  [default: every topic]")
@with_store
@with_output
def message_show(message_id: str, topic_name: str | None, root: Path, output: str, query: str | None) -> None:
    """The message with ID: the one that its sender got, or RocketMQ's offset message id."""
    from rmqclient import admin

    with opening(root, lambda: admin.open_store(root, create=False)) as store:
        found = store.message_by_id(message_id, topic_name)
        if found is None:
            raise click.ClickException(f"no message has the id {message_id}")
        if output == "table" and query is None:
            click.echo(status.message_line(found))
        else:
            write(status.message_row(found), output=output, query=query)


@message.command("find")
@click.argument("topic_name", metavar="TOPIC")
@click.argument("key", metavar="KEY")
@click.option("--since", type=moment, help="2h for two hours ago, or a time.  [default: the begin of the store]")
@click.option("--until", type=moment, help="The same.  [default: now]")
@click.option("--limit", type=click.IntRange(min=1), default=64, show_default=True)
@with_store
@with_output
def message_find(
    topic_name: str,
    key: str,
    since: int | None,
    until: int | None,
    limit: int,
    root: Path,
    output: str,
    query: str | None,
) -> None:
    """The messages of TOPIC with KEY, the newest first."""
    from rmqclient import admin

    with opening(root, lambda: admin.open_store(root, create=False)) as store:
        found = admin.find(store, topic_name, key, since_ms=since, until_ms=until, limit=limit)
    if output == "table" and query is None:
        for each in found:
            click.echo(status.message_line(each))
    else:
        write([status.message_row(each) for each in found], output=output, query=query)


@rmq.group()
def worker() -> None:
    """List worker processes."""


@worker.command("ls")
@with_store
@with_output
def worker_ls(root: Path, output: str, query: str | None) -> None:
    """All workers of all supervisors: state, age of the last beat and of the oldest message in flight."""
    from rmqclient import admin
    from rmqclient.groups.worker_table import WorkerTable

    with opening(root, lambda: admin.open_store(root, create=False)) as store:
        write([status.worker_row(row) for row in WorkerTable(store).all()], output=output, query=query)


@rmq.group("store")
def store_directory() -> None:
    """Look after a store directory, and hand it over to RocketMQ."""


store_directory.add_command(store_archive)


@store_directory.command("broker-conf")
@click.argument("root", metavar="ROOT", type=DIRECTORY)
def store_broker_conf(root: Path) -> None:
    """Print the broker.conf with which a RocketMQ broker opens the store in ROOT."""
    from rmqclient import admin

    with opening(root, lambda: contextlib.nullcontext(admin.broker_conf(root))) as text:
        click.echo(text, nl=False)


@rmq.command()
@click.argument("topic_name", metavar="TOPIC")
@click.argument("body", required=False)
@click.option("--tags", help="Tag of the message.")
@click.option("--key", "keys", multiple=True, help="Key to find it by; may be repeated.")
@click.option("--sharding-key", help="Messages with the same one keep their order.")
@click.option("--property", "properties", type=name_and_value, multiple=True, help="May be repeated.")
@click.option("--delay-level", type=click.IntRange(0, 18), default=0, help="1 to 18: 1s 5s 10s 30s 1m 2m ... 2h.")
@click.option("--compress", type=click.Choice(["lz4", "zstd", "zlib"]), help="Store it compressed, if that is smaller.")
@click.option("--delay", type=duration, help="For how long nobody gets it: 30s, 500ms, 2h or 3d.")
@click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, help="Send it this often.")
@with_store
@with_output
def send(
    topic_name: str,
    body: str | None,
    tags: str | None,
    keys: tuple[str, ...],
    sharding_key: str | None,
    properties: tuple[tuple[str, str], ...],
    delay_level: int,
    compress: str | None,
    delay: float | None,
    count: int,
    root: Path,
    output: str,
    query: str | None,
) -> None:
    """Send BODY to TOPIC; without BODY, or with -, standard input. The store is made if there is none."""
    from rmqclient import Compression, Message, Producer

    if delay_level and delay is not None:
        raise click.UsageError("--delay and --delay-level: give one of them")
    later = None if delay is None else datetime.timedelta(seconds=delay)
    compression = None if compress is None else Compression[compress.upper()]
    to_send = Message(topic_name, _body(body), tags=tags, keys=keys, properties=dict(properties))
    with opening(
        root, lambda: Producer(root, group="rmq-cli", compression=compression, compress_over_bytes=0)
    ) as producer:
        results = [producer.send(to_send, sharding_key, delay_level=delay_level, delay=later) for _ in range(count)]
    write([status.sent_row(result) for result in results], output=output, query=query)


def _body(argument: str | None) -> bytes:
    if argument is not None and argument != "-":
        return os.fsencode(argument)  # the bytes of the command line, whatever their encoding
    if argument is None and sys.stdin.isatty():
        raise click.UsageError("no BODY: give it as an argument, or - to type it")
    return sys.stdin.buffer.read()


@rmq.command()
@click.argument("topic_name", metavar="TOPIC")
@click.option(
    "--from", "begin", type=start, default="latest", show_default=True, help="earliest, latest, -100, 2h or a time."
)
@click.option("--follow/--no-follow", default=True, show_default=True, help="Wait for more at the end.")
@with_store
@with_output
def tail(topic_name: str, begin: str | int, follow: bool, root: Path, output: str, query: str | None) -> None:
    """Print the messages of TOPIC, one per line. Takes part in no group and changes no offset."""
    from rmqclient import admin

    if output == "json" and follow:
        raise click.UsageError("a JSON document has an end: use -o jsonl, or --no-follow")
    with opening(root, lambda: admin.open_store(root, create=False)) as store:
        messages = admin.tail(store, topic_name, start=begin, follow=follow)
        if output == "json":
            write([status.message_row(each) for each in messages], output=output, query=query)
            return
        for each in messages:
            if output == "table" and query is None:
                click.echo(status.message_line(each))
            else:
                write(status.message_row(each), output=output, query=query)


@store_directory.command("clean")
@click.option("--reserved-hours", type=click.IntRange(min=1), help="Age of what goes.  [default: 72]")
@with_store
@with_output
def store_clean(reserved_hours: int | None, root: Path, output: str, query: str | None) -> None:
    """Remove the files whose messages are all older than the reserved time, consumed or not.

    At any hour, and by the clock as it stands: look at it before. The newest file always stays.
    """
    from rmqclient import admin

    with opening(root, lambda: admin.open_store(root, create=False)) as store:
        write(status.cleaned_row(admin.clean(store, reserved_hours)), output=output, query=query)
