"""``rmq completion``: what a shell runs to complete commands, options, and the names that are in the store.

Topics and groups are read from the files of the store, which is not opened, so that a key press costs milliseconds.
Ids of messages are read from the store itself, unless opening it would recover it after a kill.
"""

# ruff: noqa: PLC0415 - imports inside functions: most key presses need none

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import click
from click.shell_completion import CompletionItem, get_completion_class

from rmqclient.workers.console.parameters import store_of_all
from rmqclient.workers.console.tree import Leaf

_Found: TypeAlias = Iterable[tuple[str, str]]
"""Names, each with a word of help for the shells that show one."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of `rmq` for SHELL. It completes names of topics, groups, workers and messages, too.

    The store is that of --store, RMQ_STORE or the settings file.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(context.find_root().command, {}, "rmq", "_RMQ_COMPLETE")
    click.echo(made.source_template % made.source_vars())


def complete_names(leaf: Leaf) -> None:
    """Let every argument and option of a command that is a name in the store be completed by those in the store."""
    for parameter in leaf.command.params:
        names = _COMPLETED.get((leaf.words[0], parameter.name or "")) or _COMPLETED.get(("", parameter.name or ""))
        if names is not None and not isinstance(parameter.type, click.Choice | click.Path):
            parameter._custom_shell_complete = _completing(names)  # noqa: SLF001 - there is no public way to get it later


def _completing(names: Callable[[click.Context, Path], _Found]) -> Callable[..., list[CompletionItem]]:
    def complete(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        found: _Found = ()
        with contextlib.suppress(Exception):  # a key press says nothing about a store that cannot be read
            found = sorted(dict(names(context, _store(context))).items())
        if not begun:  # topics of retries and of dead letters are for those who begin them
            found = [(name, said) for name, said in found if not name.startswith("%")]
        return [CompletionItem(name, help=said or None) for name, said in found if name.startswith(begun)]

    return complete


def _topics(context: click.Context, root: Path) -> _Found:
    """Return the topics that the group of the command consumes; without a group, or of a new one, all topics."""
    from rmqclient.names import is_system

    group = context.params.get("group_name") or context.params.get("source")
    of_group = [topic for topic, consumer in _consumed(root) if consumer == group]
    found = of_group or _keys(root / "config" / "topics.json", "topicConfigTable")
    if not found:  # a broker's store
        found = [path.name for path in (root / "consumequeue").iterdir()]
    return [(name, "") for name in found if not is_system(name)]


def _groups(_: click.Context, root: Path) -> _Found:
    return [(group, "") for _, group in _consumed(root)]


def _workers(_: click.Context, root: Path) -> _Found:
    from rmqclient.store.observe.reading import Reading

    with Reading(str(root)) as reading:
        return [(str(each.pid), each.state.name.lower()) for each in reading.workers() if each.is_here]


def _of_store(ids: Callable[[click.Context, Path], _Found]) -> Callable[[click.Context, Path], _Found]:
    """Return what reads ids from a store; none of one that nobody has recovered yet, which is no work for a key."""

    def found(context: click.Context, root: Path) -> _Found:
        return () if (root / "abort").exists() and not _is_open(root) else ids(context, root)

    return found


def _is_open(root: Path) -> bool:
    from rmqclient.store.observe.reading import Reading
    from rmqclient.store.observe.shared_file import Unreadable

    try:
        with Reading(str(root)) as reading:
            return reading.processes.is_open
    except Unreadable:
        return False


def _letters(context: click.Context, root: Path) -> _Found:
    from rmqclient.failures import dead_letters
    from rmqclient.workers.console.opening import opened_backend

    selection = dead_letters.Selection(done=bool(context.params.get("again")))
    with opened_backend(root) as backend:
        found = dead_letters.select(backend, context.params["group_name"], selection, _MOST)
        return [(each.message.message_id, each.error) for each in found]


def _waiting(_: click.Context, root: Path) -> _Found:
    from itertools import islice

    from rmqclient.schedules import waiting
    from rmqclient.workers.console.opening import opened_store

    with opened_store(root, "messages that wait for a time") as store:
        return [(each.message_id, each.topic) for each in islice(waiting.select(store), _MOST)]


def _undecided(_: click.Context, root: Path) -> _Found:
    from rmqclient.sending import transactions
    from rmqclient.workers.console.opening import opened_backend

    with opened_backend(root) as backend:
        return [(each.message.message_id, each.queue.topic) for each in transactions.select(backend)]


_MOST = 200
"""Ids that are offered: nobody reads more."""

_COMPLETED: dict[tuple[str, str], Callable[[click.Context, Path], _Found]] = {
    **{("", name): _topics for name in ("topic_name", "topic_names", "topic", "topics")},
    **{("", name): _groups for name in ("group_name", "groups")},
    ("group", "source"): _groups,
    ("group", "target"): _groups,
    ("message", "group"): _groups,
    ("worker", "pid"): _workers,
    ("worker", "pids"): _workers,
    ("dlq", "message_id"): _of_store(_letters),
    ("schedule", "message_ids"): _of_store(_waiting),
    ("tx", "message_ids"): _of_store(_undecided),
}
"""By the noun of a command, or of any, and the name of a parameter."""


def _consumed(root: Path) -> list[tuple[str, str]]:
    """Return topics, each with a group that has a committed offset in it."""
    places = _keys(root / "config" / "consumerOffset.json", "offsetTable")
    pairs = (name.partition("@") for name in places)
    return [(topic, group.partition("|")[0]) for topic, _, group in pairs]


def _keys(path: Path, table: str) -> list[str]:
    try:
        return list(json.loads(path.read_bytes())[table])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _store(context: click.Context) -> Path:
    return Path(context.params.get("root") or store_of_all(context) or ".")
