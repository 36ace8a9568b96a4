"""The page of all commands: what ``--help`` of each prints, under a heading of its own."""

from __future__ import annotations

from collections.abc import Iterator

import click
from sphinx.application import Sphinx

_PAGE = "docs/reference/commands"
_WIDTH = 96


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx call this module for each page that it reads."""
    app.connect("source-read", _add_commands)
    return {"parallel_read_safe": True}


def _add_commands(_: Sphinx, docname: str, source: list[str]) -> None:
    if docname == _PAGE:
        from rmqclient.workers.cli import rmq  # noqa: PLC0415 - only this page needs it

        source[0] += "\n".join(
            f"\n{'#' * depth} `{path}`\n\n```text\n{text}\n```\n" for path, depth, text in helps(rmq)
        )


def helps(
    command: click.Command, path: str = "rmq", parent: click.Context | None = None
) -> Iterator[tuple[str, int, str]]:
    """Yield each command below this one: its words, the depth of its heading, and what its ``--help`` prints."""
    context = click.Context(command, info_name=path.rsplit(maxsplit=1)[-1], parent=parent, terminal_width=_WIDTH)
    yield path, min(path.count(" ") + 2, 4), command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from helps(below, f"{path} {name}", context)
