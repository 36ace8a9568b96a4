"""``rmq store``: looking at a directory, repairing, cleaning and archiving it, and handing it over to RocketMQ."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.console import status
from rmqclient.workers.console.opening import StoreCannotBeOpened, one_line, opened_admin, opening
from rmqclient.workers.console.output import Output, to_json
from rmqclient.workers.console.parameters import DIRECTORY, StoreArgument, name_and_value, with_output, with_store
from rmqclient.workers.console.tree import Noun
from rmqclient.workers.exit_codes import ExitCode, explained

if TYPE_CHECKING:
    from rmqclient.archive.archiver import Report
    from rmqclient.archive.uploads import Upload
    from rmqclient.store.inspect.found import Problem


_EXIT_CODES = explained(ExitCode.OK, ExitCode.USAGE, ExitCode.STORE_CANNOT_BE_OPENED, ExitCode.CHECK_FAILED)


@click.group(cls=Noun)
def store() -> None:
    """Inspect, check, repair, clean and archive a store directory, and hand it over to RocketMQ."""


@store.command("dump", epilog=_EXIT_CODES)
@click.argument("root", cls=StoreArgument, metavar="ROOT", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Choice(["jsonl"]), default="jsonl", help="One JSON object a line, the only format."
)
def store_dump(root: Path, output: str) -> None:
    """Print every record of the commit log in ROOT, in the order of the log.

    Damaged bytes are reported on standard error and skipped. ROOT can also be one file of a store: its header,
    entries and slots are then printed.

    The store may be closed, open in other processes, or a RocketMQ 4.9 broker's. It is only read.
    """
    from rmqclient.store.inspect.dump import dump, dump_file

    del output
    damaged = False
    with _reading():
        lines = sys.stdout.buffer
        for damage in dump_file(root, lines) if root.is_file() else dump(root, lines):
            lines.flush()  # what was read before the damage stands before it, when both go to a terminal
            click.echo(damage, err=True)
            damaged = True
        lines.flush()
    if damaged:
        click.get_current_context().exit(ExitCode.CHECK_FAILED)


@store.command("verify", epilog=_EXIT_CODES)
@click.argument("root", cls=StoreArgument, metavar="ROOT", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Choice(["text", "jsonl"]), default="text", show_default=True)
def store_verify(root: Path, output: str) -> None:
    """Check the numbered invariants of the store in ROOT, listed in store/inspect/verify.py.

    Each problem is one line: number of the invariant, file, byte, reason.

    The store may be closed, open in other processes, or a RocketMQ 4.9 broker's. It is only read.
    """
    from rmqclient.store.inspect.verify import verify

    with _reading():
        problems = verify(root)
        for problem in problems:
            click.echo(to_json(_problem_row(problem)) if output == "jsonl" else str(problem))
    if problems:
        click.echo(f"check failed: {len(problems)} problem{'s' if len(problems) > 1 else ''} in {root}", err=True)
        click.get_current_context().exit(ExitCode.CHECK_FAILED)
    click.echo(f"ok: every invariant of {root} holds", err=True)


@store.command("repair")
@click.argument("root", cls=StoreArgument, metavar="ROOT", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print the steps and change nothing.")
def store_repair(root: Path, dry_run: bool) -> None:
    """Recover the store in ROOT, which no process may have open.

    First print what the next process that opens the store would do, one step a line: cut a torn tail, step over
    damaged bytes, write consume queues again. Then do it, under the lock of the store, and close the store.
    """
    from rmqclient.store.repair import planned, repair

    with _reading():
        for line in planned(root):
            click.echo(line)
        if not dry_run:
            repair(root)


@store.command("broker-conf")
@click.argument("root", cls=StoreArgument, metavar="ROOT", type=DIRECTORY)
def store_broker_conf(root: Path) -> None:
    """Print the broker.conf with which a RocketMQ broker opens the store in ROOT."""
    from rmqclient.store.inspect.broker_conf import broker_conf

    with opening(root, lambda: contextlib.nullcontext(broker_conf(root))) as text:
        click.echo(text, nl=False)


@store.command("clean")
@click.option("--reserved-hours", type=click.IntRange(min=1), help="Age of files to remove.  [default: 72]")
@with_store
@with_output
def store_clean(reserved_hours: int | None, root: Path, out: Output) -> None:
    """Remove the files whose messages are all older than the reserved time, consumed or not.

    The age is measured by the wall clock: check the clock first. The newest file is always kept.
    """
    with opened_admin(root) as admin:
        out.write(status.row_of(admin.clean(reserved_hours)))


@store.command("archive")
@click.option(
    "--to", "url", required=True, help="s3://bucket/path, file:///path, a path, or any URL that fsspec knows."
)
@click.option(
    "--option",
    "options",
    type=name_and_value,
    multiple=True,
    help="name=value for its file system, such as endpoint_override=127.0.0.1:9000. May be repeated.",
)
@with_store
@with_output
@click.pass_context
def store_archive(
    context: click.Context, url: str, options: tuple[tuple[str, str], ...], root: Path, out: Output
) -> None:
    """Upload the files of the store that no longer change and that the archive does not have.

    The store may be in use, or a RocketMQ broker's. An interrupted upload is continued. Keep credentials in the
    environment (AWS_ACCESS_KEY_ID, AWS_PROFILE), where the list of processes does not show them.

    The exit code is 1 when retention has removed files before they were archived: archive more often, or keep files
    longer.
    """
    from rmqclient.archive.archiver import archive
    from rmqclient.errors import ConfigMismatch, StoreUnusable

    try:
        report = archive(root, url, dict(options), progress=_tell)
    except (StoreUnusable, ConfigMismatch) as error:
        raise StoreCannotBeOpened(f"cannot open the store {root}: {one_line(error)}") from error
    out.write(archived_row(report))
    for lost in report.lost:
        click.echo(
            f"rmq: bytes {lost.start} to {lost.stop} of the log were removed before they were archived", err=True
        )
    if report.lost:
        context.exit(ExitCode.FAILED)


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Run a command on the directory itself. A directory that cannot be read ends the command with code 3."""
    from rmqclient.errors import StoreError

    try:
        yield
    except BrokenPipeError:  # `| head` has seen enough: end as other filters do, without a word
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    except (StoreError, OSError) as error:
        raise StoreCannotBeOpened(one_line(error)) from error


def _problem_row(problem: Problem) -> dict[str, Any]:
    return {
        "invariant": problem.invariant,
        "path": str(problem.path),
        "position": problem.position,
        "reason": problem.reason,
    }


def archived_row(report: Report) -> dict[str, Any]:
    """What an upload did, and what the archive holds."""
    return {
        "url": report.url,
        "log_files": report.log_files,
        "queue_files": report.queue_files,
        "renewed_files": report.renewed_files,
        "uploaded_bytes": report.uploaded_bytes,
        "found_files": report.found_files,
        "begin": report.log_range.start,
        "end": report.log_range.stop,
        "queues": report.queues,
        "lost_bytes": sum(map(len, report.lost)),
    }


def _tell(upload: Upload) -> None:
    """Say on standard error what was uploaded; on a terminal also how far it is."""
    if upload.name == "manifest.json":
        return
    share = f"{upload.name}  {upload.done / (upload.size or 1):4.0%} of {upload.size:,} bytes"
    if sys.stderr.isatty():
        click.echo(f"\r{share}\033[K", err=True, nl=upload.done == upload.size)
    elif upload.done == upload.size:
        click.echo(f"{upload.name}  {upload.size:,} bytes", err=True)
