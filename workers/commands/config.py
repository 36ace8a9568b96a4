"""``rmq config``: each option's value, and where it comes from."""

from __future__ import annotations

import os
from typing import Any

import click

from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import with_output
from rmqclient.workers.console.settings import Settings, load
from rmqclient.workers.console.tree import leaves, long_name, options_of, variables


@click.command()
@click.argument("words", metavar="COMMAND...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Include options with their default.")
@with_output
@click.pass_context
def config(context: click.Context, words: tuple[str, ...], everything: bool, out: Output) -> None:
    """Show the options that a variable or the settings file gives, with their origin; of COMMAND alone, if given.

    In order of precedence: command line, variable, settings file, default. The file is that of --config or
    RMQ_CONFIG, or ./rmq.toml, or [tool.rmq] of the nearest pyproject.toml.
    """
    root = context.find_root()
    settings = load(root.params.get("config_file"))
    assert isinstance(root.command, click.Group)
    rows = [
        row
        for path, command in leaves(root.command)
        if path[: len(words)] == words
        for option in options_of(command)
        if (row := _row(path, option, settings)) and (everything or row["origin"] != "default")
    ]
    nothing = "every option has its default; `rmq config --all` shows them"
    out.write(rows, nothing=nothing)


def _default(option: click.Option) -> object:
    usual = option.to_info_dict().get("default")
    return usual if isinstance(usual, str | int | float | bool) else None


def _row(path: tuple[str, ...], option: click.Option, settings: Settings) -> dict[str, Any]:
    name = long_name(option)
    for variable in variables(path, option):
        if value := os.environ.get(variable):
            return _told(path, name, value, variable)
    found = settings.option(path, name)
    if found is not None:
        return _told(path, name, found, settings.path)
    return _told(path, name, _default(option), "default")


def _told(path: tuple[str, ...], name: str, value: object, origin: str) -> dict[str, Any]:
    from rmqclient.place import shown  # noqa: PLC0415 - help is quick

    return {
        "command": " ".join(path),
        "option": name,
        "value": shown(value) if name == "store" and value is not None else value,
        "origin": origin,
    }
