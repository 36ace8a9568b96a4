"""``rmq dlq``: listing dead letters, sending them again, and putting them aside."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from rmqclient.workers.console import status
from rmqclient.workers.console.asking import confirm, unknown, with_yes
from rmqclient.workers.console.opening import opened_backend
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import moment, refuse, with_output, with_rows, with_store
from rmqclient.workers.console.tree import Noun
from rmqclient.workers.console.watching import with_watch

if TYPE_CHECKING:
    from rmqclient.backend.backend import Backend
    from rmqclient.failures.dead_letters import DeadLetter, Selection

Command = TypeVar("Command", bound=Callable[..., Any])


def _with_selection(command: Command) -> Command:
    """Add the options that choose dead letters, which the command gets as ``selection``, and ``--limit``."""
    for option in (
        click.option("--limit", type=click.IntRange(min=1), help="Maximum number of dead letters, oldest first."),
        click.option("--again", is_flag=True, help="Also dead letters that were replayed or purged already."),
        click.option("--id", "message_id", help="Only the dead letter with this id."),
        click.option("--key", help="Only dead letters with this key."),
        click.option("--since", type=moment, help="Failed at that time or later: 2h for two hours ago, or a time."),
        click.option("--error", help="Part of the last failure, such as TimeoutError or death."),
        click.option("--topic", help="Only dead letters that failed in this topic."),
    ):
        command = option(command)
    return command


def _selection(chosen: dict[str, Any]) -> Selection:
    from rmqclient.failures.dead_letters import Selection

    return Selection(
        topic=chosen["topic"],
        error=chosen["error"],
        since_ms=chosen["since"],
        key=chosen["key"],
        message_id=chosen["message_id"],
        done=chosen["again"],
    )


_with_dry_run = click.option("--dry-run", is_flag=True, help="Only list the dead letters.")


@click.group(cls=Noun)
def dlq() -> None:
    """List, replay and purge dead letters: messages whose handling failed for good."""


@dlq.command("ls")
@click.argument("group_name", metavar="GROUP", required=False)
@_with_selection
@with_store
@with_rows
@with_watch
def dlq_ls(group_name: str | None, root: Path | str, out: Output, limit: int | None, **chosen: Any) -> None:
    """List the dead letters of GROUP; without GROUP, the groups that have dead letters."""
    from rmqclient.failures import dead_letters

    with opened_backend(root) as backend:
        if group_name is None:
            refuse(["limit", *chosen], "without GROUP, whose dead letters it would choose")
            out.write(map(status.row_of, dead_letters.groups(backend)), nothing="no dead letters")
            return
        _check_group(backend, group_name)
        found = dead_letters.select(backend, group_name, _selection(chosen))
        count = 0 if limit is not None else len(dead_letters.damaged(backend, group_name))
        nothing = "" if count else "no dead letters"
        is_found = out.write(map(status.dead_letter_row, found), limit=limit, nothing=nothing)
    if count:
        remedy = f"`rmq store verify` names them, `rmq dlq purge {group_name}` puts them aside with the others"
        click.echo(f"{_count_of(count)} cannot be read, because of damaged records: {remedy}", err=True)
    _check_found(is_found, group_name, chosen, out.where)


@dlq.command("show")
@click.argument("group_name", metavar="GROUP")
@click.argument("message_id", metavar="ID")
@with_store
@with_output
def dlq_show(group_name: str, message_id: str, root: Path | str, out: Output) -> None:
    """Show a dead letter with its history: time, place and traceback of each failure."""
    from rmqclient.failures import dead_letters

    with opened_backend(root) as backend:
        _check_group(backend, group_name)
        selection = dead_letters.Selection(message_id=message_id, done=True)
        *_, letter = [None, *dead_letters.select(backend, group_name, selection)]
    if letter is None:
        raise click.ClickException(f"group {group_name} has no dead letter with the id {message_id}")
    if out.is_for_people:
        for line in status.dead_letter_lines(letter):
            click.echo(line)
    else:
        out.write(status.dead_letter_detail(letter))


@dlq.command("export")
@click.argument("group_name", metavar="GROUP")
@click.argument("file", type=click.File("wb", atomic=True), default="-")
@_with_selection
@with_store
def dlq_export(group_name: str, file: BinaryIO, root: Path | str, limit: int | None, **chosen: Any) -> None:
    """Write dead letters of GROUP to FILE, or to standard output: one JSON object a line, the oldest first.

    A body that is not text is in base64, as body_base64. `rmq send TOPIC --jsonl FILE` sends the lines again, as new
    messages without their failures. FILE appears when it is complete; the dead letters stay as they are.
    """
    from rmqclient.failures import dead_letters
    from rmqclient.workers.console.output import to_json

    with opened_backend(root) as backend:
        _check_group(backend, group_name)
        count = 0
        for letter in dead_letters.select(backend, group_name, _selection(chosen), limit):
            file.write(to_json(status.exported_letter(letter)).encode() + b"\n")
            count += 1
    click.echo(f"{_count_of(count)} exported", err=True)


@dlq.command("replay")
@click.argument("group_name", metavar="GROUP")
@_with_selection
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Maximum number per second.")
@_with_dry_run
@with_store
@with_output
def dlq_replay(
    group_name: str, rate: float | None, dry_run: bool, root: Path | str, out: Output, limit: int | None, **chosen: Any
) -> None:
    """Send dead letters of GROUP to the topics where they failed, each once unless --again is given.

    Every group of the topic gets them again, with their ids unchanged. A dead letter that cannot be stored again is
    named at the end, and stays where it is.
    """
    from rmqclient.errors import LettersRejected
    from rmqclient.failures import dead_letters

    letters: list[DeadLetter] = []
    rejected = ""
    with opened_backend(root) as backend:
        _check_group(backend, group_name)
        if dry_run:
            letters += dead_letters.select(backend, group_name, _selection(chosen), limit)
        else:
            try:
                for letter, _ in dead_letters.replay(backend, group_name, _selection(chosen), limit=limit, rate=rate):
                    letters.append(letter)
            except LettersRejected as error:
                rejected = str(error)
    _report(letters, "would be replayed" if dry_run else "replayed", out)
    if rejected:
        raise click.ClickException(rejected)
    _check_found(bool(letters), group_name, chosen)


@dlq.command("purge")
@click.argument("group_name", metavar="GROUP")
@_with_selection
@_with_dry_run
@with_yes
@with_store
@with_output
def dlq_purge(
    group_name: str, dry_run: bool, yes: bool, root: Path | str, out: Output, limit: int | None, **chosen: Any
) -> None:
    """Set dead letters of GROUP aside: later commands skip them unless --again is given.

    They stay in the log until retention removes them. Without a selection, those that cannot be read are put aside,
    too.
    """
    from rmqclient.failures import dead_letters

    with opened_backend(root) as backend:
        _check_group(backend, group_name)
        letters = list(dead_letters.select(backend, group_name, _selection(chosen), limit=limit))
        is_all = limit is None and not any(chosen.values())
        damaged = len(dead_letters.damaged(backend, group_name)) if is_all else 0
        if not dry_run and (letters or damaged):
            confirm(f"put {_count_of(len(letters) + damaged)} of {group_name} aside?", yes=yes)
            letters = list(dead_letters.purge(backend, group_name, _selection(chosen), limit=limit))
            damaged = dead_letters.put_damaged_aside(backend, group_name) if damaged else 0
    _report(letters, "would be purged" if dry_run else "purged", out)
    if damaged:
        verb = "would be" if dry_run else "were" if damaged > 1 else "was"
        click.echo(f"{_count_of(damaged)} that cannot be read {verb} purged, too", err=True)
    _check_found(bool(letters), group_name, chosen)


def _check_group(backend: Backend, group_name: str) -> None:
    """Raise ClickException for a group that the store does not know."""
    from rmqclient.admin import Admin
    from rmqclient.failures import dead_letters
    from rmqclient.failures.retry import dead_letter_topic

    if dead_letter_topic(group_name) not in backend.topics.names():
        known = {each.group for each in dead_letters.groups(backend)} | {each.group for each in Admin(backend).groups()}
        if group_name not in known:
            raise unknown("group", group_name, known)


def _check_found(is_found: bool, group_name: str, chosen: dict[str, Any], where: str | None = None) -> None:
    """Raise ClickException if a letter was asked for by its id or key, and there is none."""
    for name, word in (("message_id", "id"), ("key", "key")):
        if not is_found and chosen[name] is not None:
            holds = "" if where is None else f", for which this holds: {where}"
            reason = f"group {group_name} has no such dead letter, with the {word} {chosen[name]}{holds}"
            raise click.ClickException(reason)


def _report(letters: list[DeadLetter], what: str, out: Output) -> None:
    out.write([status.dead_letter_row(each) for each in letters])
    click.echo(f"{_count_of(len(letters))} {what}", err=True)


def _count_of(letters: int) -> str:
    return "1 dead letter" if letters == 1 else f"{letters} dead letters"
