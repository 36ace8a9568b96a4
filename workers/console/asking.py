"""Asking back: a question before something is changed, and another name for one that nobody knows."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable

import click

with_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask on a terminal.")
"""Adds ``--yes``, which answers the question; the command gets it as ``yes``."""


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal before something is changed; a script is not asked. Raises ``click.Abort`` for a no."""
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def unknown(kind: str, name: str, known: Iterable[str]) -> click.ClickException:
    """Return the error for a name that nobody knows, with one that is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    hint = f": did you mean {close[0]}?" if close else f"; `rmq {kind} ls` lists them"
    return click.ClickException(f"no {kind} is named {name}{hint}")
