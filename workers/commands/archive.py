"""``rmq store archive``: the sealed files of a store, uploaded once each."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.console.opening import StoreCannotBeOpened, one_line
from rmqclient.workers.console.output import write
from rmqclient.workers.console.parameters import name_and_value, with_output, with_store
from rmqclient.workers.exit_codes import ExitCode

if TYPE_CHECKING:
    from rmqclient.archive.archiver import Report
    from rmqclient.archive.uploads import Upload


@click.command("archive")
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
    context: click.Context, url: str, options: tuple[tuple[str, str], ...], root: Path, output: str, query: str | None
) -> None:
    """Upload the files of the store that will not change any more, those that are not archived yet.

    The store may be in use, or a RocketMQ broker's. What was interrupted is taken up again. Credentials are best left
    in the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE), where nobody sees them in a list of processes.

    Ends with 1 when retention has removed files before they were archived: run it more often, or keep files longer.
    """
    from rmqclient.archive.archiver import archive
    from rmqclient.errors import ConfigMismatch, StoreUnusable

    try:
        report = archive(root, url, dict(options), progress=_tell)
    except (StoreUnusable, ConfigMismatch) as error:
        raise StoreCannotBeOpened(f"cannot open the store {root}: {one_line(error)}") from error
    write(archived_row(report), output=output, query=query)
    for lost in report.lost:
        click.echo(
            f"rmq: bytes {lost.start} to {lost.stop} of the log were removed before they were archived", err=True
        )
    if report.lost:
        context.exit(ExitCode.FAILED)


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
    import sys

    if upload.name == "manifest.json":
        return
    share = f"{upload.name}  {upload.done / (upload.size or 1):4.0%} of {upload.size:,} bytes"
    if sys.stderr.isatty():
        click.echo(f"\r{share}\033[K", err=True, nl=upload.done == upload.size)
    elif upload.done == upload.size:
        click.echo(f"{upload.name}  {upload.size:,} bytes", err=True)
