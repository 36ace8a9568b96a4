"""``rmq pipeline``: jobs over a store with Spark."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick, and Spark takes seconds

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from rmqclient.place import located, shown
from rmqclient.workers.console.layout import local_time
from rmqclient.workers.console.opening import one_line
from rmqclient.workers.console.parameters import (
    DIRECTORY,
    check_range,
    duration,
    moment,
    name_and_value,
    refuse,
    with_output,
    with_store,
)
from rmqclient.workers.console.tree import Noun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOB = Path(__file__).parents[1] / "pipeline_job.py"
BY_SPARK_SUBMIT = "spark-submit"
"""The ``obj`` of a command's context when spark-submit runs the command."""

_ARGUMENTS = f"{__name__}.arguments"
_TIMES = frozenset(("start_ms", "end_ms", "hour_ms", "first_ms", "last_ms"))

Command = TypeVar("Command", bound=Callable[..., Any])

_FORMATS = click.Choice(["parquet", "delta"])
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size(text: str) -> int:
    """``1000``, ``64k``, ``128m``, ``2g``: bytes; raises ``click.BadParameter``."""
    number, unit = (text[:-1], text[-1].lower()) if text[-1:].isalpha() else (text, "")
    if not number.isascii() or not number.isdigit() or unit not in _SIZES or not int(number):
        raise click.BadParameter(f"{text!r} is not a size: write 1000, 64k, 128m or 2g")
    return int(number) * _SIZES[unit]


def _with_spark(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every pipeline: the store, the session, the output and options of the source."""
    master = click.option("--master", help="Where Spark runs.  [default: local[*], or what spark-submit says]")
    conf = click.option("--conf", type=name_and_value, multiple=True, metavar="NAME=VALUE", help="A setting of Spark.")
    option = click.option(
        "--option", "options", type=name_and_value, multiple=True, metavar="NAME=VALUE", help="An option of the source."
    )
    return with_store(option(master(conf(with_output(command)))))


_with_topics = click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)


def _with_range(command: Command) -> Command:
    """Add the options that say which messages, by the time when they were stored."""
    since = click.option("--since", type=moment, help="Stored since then: 2h for two hours ago, or a time.")
    until = click.option("--until", type=moment, help="Stored before that.")
    return since(until(command))


_with_every = click.option("--every", type=duration, help="Go on until Ctrl-C, with a micro-batch this often.")


class _Pipeline(click.Command):
    """Remembers its arguments, for the spark-submit line that runs the same command."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, epilog="Spark takes 5 to 10 seconds to start.", **settings)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)


@click.group(cls=Noun)
def pipeline() -> None:
    """Archive, count, inspect and replay messages with Spark.

    Spark takes 5 to 10 seconds to start. It is installed with pip install 'rmqclient[spark]' and needs Java 17 or
    newer. Each command says on standard error how spark-submit runs it, on any cluster whose machines see the store
    under the same path and have rmqclient installed.
    """


@pipeline.command("archive", cls=_Pipeline)
@_with_topics
@click.option("--to", "target", type=DIRECTORY, required=True, help="Directory of the archive.")
@click.option("--format", "table_format", type=_FORMATS, default="parquet", show_default=True)
@_with_every
@click.option("--batch-size", type=size, default="1g", show_default=True, help="Most bytes of one micro-batch.")
@click.option("--file-size", type=size, default="128m", show_default=True, help="Bytes of records for one file.")
@click.option("--merge", is_flag=True, help="Merge the small files of a day.")
@click.option("--metadata", is_flag=True, help="Add the columns of includeMetadata.")
@_with_spark
def pipeline_archive(
    topics: tuple[str, ...],
    target: Path,
    table_format: Any,
    every: float | None,
    batch_size: int,
    file_size: int,
    merge: bool,
    metadata: bool,
    **common: Any,
) -> None:
    """Write the messages that TOPICs got since the last run to Parquet by topic and day, each message exactly once.

    TARGET.work records what has been written: keep the two directories together.
    """
    with _running(common) as (spark, root, options):
        from rmqclient.spark.pipelines.archive import archive

        result = archive(
            spark,
            root,
            topics,
            target,
            every=every,
            table_format=table_format,
            batch_bytes=batch_size,
            file_bytes=file_size,
            merge=merge,
            metadata=metadata,
            options=options,
        )
        _write([asdict(result)], common)


@pipeline.command("aggregate", cls=_Pipeline)
@_with_topics
@click.option("--window", default="1 minute", show_default=True, help="Such as '10 seconds' or '1 hour'.")
@click.option("--slide", help="Windows begin this often, and overlap.  [default: as long as the window]")
@click.option(
    "--by",
    "time",
    type=click.Choice(["born_timestamp", "timestamp"]),
    default="born_timestamp",
    show_default=True,
    help="When a message was sent, or when it was stored.",
)
@click.option("--to", "target", type=DIRECTORY, help="Add each window that is over to Parquet files, once.")
@click.option("--lateness", default="10 minutes", show_default=True, help="With --to: how late a message may come.")
@_with_every
@_with_range
@_with_spark
def pipeline_aggregate(
    topics: tuple[str, ...],
    window: str,
    slide: str | None,
    time: Any,
    target: Path | None,
    lateness: str,
    every: float | None,
    **common: Any,
) -> None:
    """Count the messages and bytes of TOPICs by window of time, topic and tag, with the latency until they were stored.

    Without --to, the messages stored now. With --to, a stream that a later run continues.
    """
    if target is None:
        refuse(["lateness"], "without --to")
    if target is None and every is not None:
        raise click.UsageError("--every is for a stream: say where its windows go with --to")
    if target is not None and common["until"] is not None:
        raise click.UsageError("--until is for what is there now: a stream with --to has no end")
    with _running(common) as (spark, root, options):
        from rmqclient.spark.pipelines.aggregate import aggregate, aggregate_stream

        if target is None:
            found = aggregate(spark, root, topics, window=window, slide=slide, time=time, options=options)
            _write([asdict(each) for each in found], common)
            return
        added = aggregate_stream(
            spark,
            root,
            topics,
            target,
            window=window,
            slide=slide,
            time=time,
            lateness=lateness,
            every=every,
            options=options,
        )
        _write([asdict(added)], common)


@pipeline.command("dead-letters", cls=_Pipeline)
@click.argument("groups", metavar="GROUP...", nargs=-1)
@click.option("--where", help='Only dead letters for which this SQL92, or SQL of Spark, holds: "attempts > 3".')
@click.option("--window", default="1 hour", show_default=True)
@click.option("--chart", type=click.Path(path_type=Path, dir_okay=False), help="Draw it to this PNG file.")
@click.option("--replay", "is_replay", is_flag=True, help="Send the selected ones of one GROUP again, each once.")
@click.option("--dry-run", is_flag=True, help="With --replay: only list them.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="With --replay: maximum number per second.")
@_with_range
@_with_spark
def pipeline_dead_letters(
    groups: tuple[str, ...],
    where: str | None,
    window: str,
    chart: Path | None,
    is_replay: bool,
    dry_run: bool,
    rate: float | None,
    **common: Any,
) -> None:
    """Show the dead letters of GROUPs, or of all groups, by time, exception and handler.

    A condition may name group, topic, error, text, handler, attempts, timestamp, born_timestamp, key, tags, value,
    properties, msg_id and offset.
    """
    if is_replay and len(groups) != 1:
        raise click.UsageError("--replay is for the dead letters of one GROUP: name it")
    if is_replay:
        refuse(["window", "chart"], "beside --replay, which shows no numbers")
    else:
        refuse(["dry_run", "rate"], "without --replay")
    with _running(common) as (spark, root, options):
        from rmqclient.spark.pipelines.dead_letters import analyse, replay

        if is_replay:
            done = replay(spark, root, groups[0], where=where, rate=rate, dry_run=dry_run, options=options)
            _write([{"message_id": each} for each in done.message_ids], common)
            what = "would be replayed" if dry_run else "replayed"
            click.echo(f"{done.replayed} of {done.selected} dead letters {what}", err=True)
            return
        found = analyse(spark, root, groups, where=where, window=window, chart=chart, options=options)
        _write([asdict(each) for each in found], common)


@pipeline.command("compact", cls=_Pipeline)
@_with_topics
@click.option("--to", "target", type=DIRECTORY, required=True, help="Directory that is replaced.")
@click.option("--format", "table_format", type=_FORMATS, default="parquet", show_default=True)
@click.option("--empty-is-deleted", is_flag=True, help="A key whose latest body is empty is left out.")
@click.option("--table", help="Enter it into the session's catalog under this name.")
@_with_range
@_with_spark
def pipeline_compact(
    topics: tuple[str, ...], target: Path, table_format: Any, empty_is_deleted: bool, table: str | None, **common: Any
) -> None:
    """Write the latest message of each key of TOPICs to Parquet, and replace the directory."""
    with _running(common) as (spark, root, options):
        from rmqclient.spark.pipelines.compact import compact

        result = compact(
            spark,
            root,
            topics,
            target,
            table_format=table_format,
            empty_is_deleted=empty_is_deleted,
            table=table,
            options=options,
        )
        _write([asdict(result)], common)


@pipeline.command("backfill", cls=_Pipeline)
@_with_topics
@click.option("--to", required=True, help="Topic to write to.")
@click.option("--name", required=True, help="Name of this backfill: run again under it, nothing is written twice.")
@click.option("--where", help="Only messages for which this SQL92, or SQL of Spark, holds.")
@click.option("--select", multiple=True, metavar="SQL", help='Replace a column: "upper(tags) AS tags".')
@click.option("--transform", metavar="MODULE:FUNCTION", help="A function from data frame to data frame.")
@click.option("--by-key", is_flag=True, help="Choose queues by key.  [default: a message keeps its queue id]")
@click.option("--chunk", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="Messages of a batch.")
@click.option("--to-store", type=DIRECTORY, help="Another store.")
@_with_range
@_with_spark
def pipeline_backfill(
    topics: tuple[str, ...],
    to: str,
    name: str,
    where: str | None,
    select: tuple[str, ...],
    transform: str | None,
    by_key: bool,
    chunk: int,
    to_store: Path | None,
    **common: Any,
) -> None:
    """Write a range of messages of TOPICs to another topic, each once, in the order of their queues.

    The first run fixes the range. After a kill, run it again with the same options.
    """
    function = _loaded(transform) if transform else None
    with _running(common) as (spark, root, options):
        from rmqclient.spark.pipelines.backfill import backfill

        result = backfill(
            spark,
            root,
            topics,
            to,
            name,
            transform=function,
            select=select,
            where=where,
            keep_queues=not by_key,
            chunk=chunk,
            target_store=to_store,
            options=options,
        )
        _write([asdict(result)], common)


@pipeline.command("audit", cls=_Pipeline)
@click.argument("topics", metavar="TOPIC...", nargs=-1)
@click.option(
    "--show",
    type=click.Choice(["hours", "queues", "groups"]),
    default="hours",
    show_default=True,
    help="Which table to show; JSON has all three.",
)
@_with_spark
def pipeline_audit(topics: tuple[str, ...], show: str, **common: Any) -> None:
    """Show counts, duplicates and latencies by topic and hour, gaps by queue, and lag by group, from the log itself.

    Without TOPICs: all topics except the store's own. The exit code is 1 when a queue has gaps.
    """
    with _running(common) as (spark, root, options):
        from rmqclient.spark.pipelines.audit import audit

        found = audit(spark, root, topics, options=options)
        _write(asdict(found), common, rows=asdict(found)[show])
    for queue in found.queues:
        if queue.missing:
            ranges = ", ".join(f"{start} to {stop - 1}" for start, stop in queue.gaps)
            click.echo(f"queue {queue.queue_id} of {queue.topic}: {queue.missing} missing: {ranges}", err=True)
    if not found.is_clean:
        raise SystemExit(1)


# --- what they have in common ---------------------------------------------------------------------


@contextlib.contextmanager
def _running(common: dict[str, Any]) -> Iterator[tuple[SparkSession, Path | str, dict[str, str | int | bool]]]:
    """Yield the session, the store and the options of the source; turn errors of Spark into one line."""
    from rmqclient.spark import session

    check_range(common.get("since"), common.get("until"))
    context = click.get_current_context()
    if context.obj != BY_SPARK_SUBMIT and importlib.util.find_spec("pyspark") is not None:
        click.echo(spark_submit_line(context, common), err=True)
    options: dict[str, str | int | bool] = dict(common["options"])
    for name, value in (("startingTimestamp", common.get("since")), ("endingTimestamp", common.get("until"))):
        if value is not None:
            options[name] = value
            options["startingOffsetsByTimestampStrategy"] = "latest"
    settings = {"spark.log.level": "ERROR"} | dict(common["conf"])
    spark = session(common["master"], "rmq pipeline", **settings)
    from pyspark.errors import PySparkException

    try:
        yield spark, located(str(common["root"])), options
    except (ValueError, OSError, PySparkException) as error:
        raise click.ClickException(_reason(error)) from error


def spark_submit_line(context: click.Context, common: dict[str, Any]) -> str:
    """Return the command line with which spark-submit runs this command."""
    arguments = [shown(each) for each in context.meta[_ARGUMENTS]]
    if not any(each == "--store" or each.startswith("--store=") for each in arguments):
        arguments += ["--store", shown(common["root"])]
    settings = {"spark.pyspark.python": sys.executable} | dict(common["conf"])
    line = ["spark-submit", "--master", common["master"] or "local[*]"]
    for name, value in settings.items():
        line += ["--conf", f"{name}={value}"]
    return shlex.join([*line, str(_JOB), str(context.info_name), *_without(arguments, "--master", "--conf")])


def _loaded(target: str) -> Callable[..., Any]:
    """Return the function ``module:name``, with the working directory on the path."""
    module, _, name = target.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise click.BadParameter(f"{target!r} cannot be imported: {error}", param_hint="--transform") from error
    if not callable(found):
        raise click.BadParameter(f"{target!r} is not a function", param_hint="--transform")
    return cast("Callable[..., Any]", found)


def _without(arguments: list[str], *options: str) -> Iterator[str]:
    """Leave out options and their values, given as the next argument or after an equals sign."""
    waiting = iter(arguments)
    for each in waiting:
        if each in options:
            next(waiting, None)
        elif not each.startswith(tuple(f"{option}=" for option in options)):
            yield each


def _reason(error: Exception) -> str:
    """Return an error on one line. Of an error inside Spark that is the one raised on purpose, if there is one."""
    raised = re.findall(r"(?:rmqclient[\w.]*\.errors\.\w+|\b\w+Error): (.+)", str(error))
    return str(raised[-1]) if raised else one_line(error)


def _write(data: list[dict[str, Any]] | dict[str, Any], common: dict[str, Any], rows: Any = None) -> None:
    shown = None if rows is None else _readable(rows)
    common["out"].write(_readable(data), rows=shown)


def _readable(data: Any) -> Any:
    """Return rows with local times in place of milliseconds."""
    if isinstance(data, dict):
        return dict(_readable_item(name, value) for name, value in data.items())
    return [_readable(each) for each in data] if isinstance(data, list | tuple) else data


def _readable_item(name: str, value: Any) -> tuple[str, Any]:
    if name not in _TIMES:
        return name, _readable(value)
    return name.removesuffix("_ms"), local_time(value)
