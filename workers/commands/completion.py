"""``rmq completion``: what a shell runs to complete commands, options, and the names of topics and groups.

The names are read from the files of the store, which is not opened, so that a key press costs milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from rmqclient.workers.console import environment


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of `rmq` for SHELL. It completes names of topics and groups, too.

    The store is that of --store, RMQ_STORE or the settings file.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(context.find_root().command, {}, "rmq", "_RMQ_COMPLETE")
    click.echo(made.source_template % made.source_vars())


def complete_names(command: click.Command) -> None:
    """Let every argument of a command that is a topic or a group be completed by the names in the store."""
    for parameter in command.params:
        if parameter.name in ("topic_name", "topic_names"):
            parameter._custom_shell_complete = _topics  # noqa: SLF001 - an argument has no public way to get it later
        elif parameter.name in ("group_name", "source", "target") and isinstance(parameter, click.Argument):
            parameter._custom_shell_complete = _groups  # noqa: SLF001 - as above


def _topics(context: click.Context, _parameter: click.Parameter, begun: str) -> list[Any]:
    root = _store(context)
    found = set(_keys(root / "config" / "topics.json", "topicConfigTable"))
    if not found:  # a broker's store
        with contextlib.suppress(OSError):
            found = {path.name for path in (root / "consumequeue").iterdir()}
    return _items(found, begun)


def _groups(context: click.Context, _parameter: click.Parameter, begun: str) -> list[Any]:
    places = _keys(_store(context) / "config" / "consumerOffset.json", "offsetTable")
    return _items({name.partition("@")[2].partition("|")[0] for name in places}, begun)


def _items(found: set[str], begun: str) -> list[Any]:
    shown = sorted(name for name in found if name.startswith(begun) and not (name.startswith("%") and not begun))
    return [click.shell_completion.CompletionItem(name) for name in shown]


def _keys(path: Path, table: str) -> list[str]:
    try:
        return list(json.loads(path.read_bytes())[table])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _store(context: click.Context) -> Path:
    given = context.params.get("root") or context.find_root().params.get("root")
    return Path(given or os.environ.get(environment.STORE) or ".")
