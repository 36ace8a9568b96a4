"""``rmq replica``: a store that follows another one, for a second host."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import contextlib
import json
import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rmqclient.workers.console.asking import confirm, with_yes
from rmqclient.workers.console.opening import opening
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import DIRECTORY, with_log_options, with_output, with_store
from rmqclient.workers.console.tree import Noun
from rmqclient.workers.exit_codes import EXPLAINED

if TYPE_CHECKING:
    from rmqclient.replication.acks.connected import Connected
    from rmqclient.replication.follower import Follower
    from rmqclient.replication.promotion import ReplicaStatus
    from rmqclient.replication.returning.rejoining import Rejoining
    from rmqclient.workers.processes.logs import LogFormat


_OF_A_FOLLOWER: Final = {
    "primary", "broker", "is_followed", "primary_end", "missing_bytes", "silent_s", "behind_s", "problem",
}  # fmt: skip
"""Fields that a table omits for a store that follows no primary."""


@click.group(cls=Noun)
def replica() -> None:
    """Keep a copy of a store on another host, and fail over to it."""


@replica.command("follow", epilog=EXPLAINED)
@click.argument("primary", metavar="HOST:PORT")
@click.option("--store", "root", type=DIRECTORY, required=True, help="Directory of the replica; made if it is missing.")
@click.option("--broker", metavar="HOST:PORT", help="Where the primary answers requests.  [default: the port before]")
@click.option(
    "--ack",
    type=click.Choice(["disk", "memory"]),
    default="disk",
    show_default=True,
    help="Report bytes when they are on the disk here, or in memory as a RocketMQ slave.",
)
@with_log_options
def follow(primary: str, root: Path, broker: str | None, ack: str, log_level: str, log_format: LogFormat) -> None:
    """Follow the store that sends its log at HOST:PORT: `rmq serve --ha-listen`, or a RocketMQ master's HA port.

    Prints one line of JSON when it begins. TERM and Ctrl-C end it.
    """
    from rmqclient.replication.following import follow as run
    from rmqclient.replication.receiving import Ack
    from rmqclient.workers.processes.logs import configure_logging

    configure_logging(log_level.upper(), log_format)

    def begin(follower: Follower, end: int) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: follower.end())
        click.echo(json.dumps({"follows": primary, "end": end, "pid": os.getpid()}))

    try:
        run(root, primary, broker, Ack(ack), begin)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@replica.command("status")
@with_store
@with_output
def show(root: Path | str, out: Output) -> None:
    """Show the state of a store: what it has, what a replica lacks, its epoch, and when it last heard its primary.

    For a store that others follow: what sends wait for, and what replicas have.
    """
    from rmqclient.replication.acks.standing import standing
    from rmqclient.replication.promotion import status

    directory = _directory(root)
    with opening(root, lambda: contextlib.nullcontext((status(directory), standing(directory)))) as (own, followed):
        shown = asdict(own) | (asdict(followed) if followed else {})
        is_primary = own.role == "primary"
        rows = [
            {"what": name, "value": value}
            for name, value in shown.items()
            if not (is_primary and name in _OF_A_FOLLOWER) and name != "replicas"
        ]
        rows += [
            {"what": f"replica {each.address}", "value": _told(each)}
            for each in (followed.replicas if followed else ())
        ]
        out.write([shown], rows=rows)


@replica.command("promote")
@with_store
@click.option("--force", is_flag=True, help="Even if bytes are missing, or the primary was heard recently.")
@with_yes
@with_output
def promote(root: Path | str, force: bool, yes: bool, out: Output) -> None:
    """Make the replica a primary, permanently, when the host of its primary is lost.

    `rmq replica follow` must have ended. On a terminal it says what is missing, and asks.

    The old primary is told that it was replaced, as soon as it can be reached: now, or later by `rmq serve --ha-listen`
    here. Until then make sure that nothing is sent to it.
    """
    from rmqclient.replication import promotion

    directory = _directory(root)
    with opening(root, lambda: contextlib.nullcontext(promotion.promotable(directory, force=force))) as before:
        confirm(f"{_lost_by_promotion(before)}. Make {directory} a primary, for good?", yes=yes)
    with opening(root, lambda: contextlib.nullcontext(promotion.promote(directory, force=force))) as found:
        out.write([asdict(found)])


@replica.command("rejoin")
@click.argument("primary", metavar="HOST:PORT")
@with_store
@click.option("--broker", metavar="HOST:PORT", help="Where the primary answers requests.  [default: the port before]")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_output
def rejoin(primary: str, root: Path | str, broker: str | None, yes: bool, out: Output) -> None:
    """Make a store that was a primary a replica of the one that took its place, at HOST:PORT.

    Shows what only this store has: bytes, messages, and the seconds in which they were sent. These bytes are saved in a
    file below `diverged`, and cut off. Every process that uses the store must have ended. Next: `rmq replica follow`.
    """
    from rmqclient.replication.returning import rejoining

    directory = _directory(root)
    with opening(root, lambda: contextlib.nullcontext(_looked(directory, primary))) as found:
        out.write([asdict(found)])
    what = f"{found.cut_messages} messages ({found.cut_bytes} bytes) that only {directory} has"
    if not yes:
        click.confirm(f"Put aside {what}, and follow {primary}?", abort=True, err=True)
    with opening(root, lambda: contextlib.nullcontext(rejoining.rejoin(directory, found, broker))) as kept:
        click.echo(
            f"{directory} follows {primary} from byte {found.cut_to}" + (f"; {kept} keeps the rest" if kept else ""),
            err=True,
        )


def _looked(directory: Path, primary: str) -> Rejoining:
    """Return what a rejoin would cut. Raises ClickException when nobody answers, and as opening the store."""
    from rmqclient.errors import FrameError
    from rmqclient.replication.returning import rejoining

    try:
        return rejoining.look(directory, primary)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except (OSError, FrameError) as error:
        raise click.ClickException(f"{primary} does not answer as a primary: {error}. Nothing was changed") from error


def _lost_by_promotion(found: ReplicaStatus) -> str:
    """Return what a promotion may lose, in a line."""
    if found.role != "follower":
        return f"{found.role}: what another store has of its messages is not asked for"
    if found.silent_s is None:
        return f"{found.primary} was never heard: what it has is not known"
    level = "never" if found.behind_s is None else f"{found.behind_s:.1f} s ago"
    return (
        f"{found.missing_bytes} bytes of {found.primary} are missing. It was heard {found.silent_s:.1f} s ago, and all "
        f"that it had was here {level}: what it got later may be missing, too"
    )


def _told(replica: Connected) -> str:
    """Return what is known of a replica that is connected, in a line."""
    name = replica.copy or "a slave of RocketMQ"
    behind = "has reported nothing yet" if replica.missing_bytes is None else f"{replica.missing_bytes} bytes missing"
    return f"{name}, {behind}, reports from {replica.reports}"


def _directory(root: Path | str) -> Path:
    if isinstance(root, str):
        raise click.UsageError(f"{root}: a replica is a directory on this host")
    return root
