"""Watching: a command again and again on the same screen, until Ctrl-C."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from rmqclient.workers.console import terminal
from rmqclient.workers.console.parameters import duration, refuse

_CLEAR = "\x1b[2J"


def with_watch(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-w`` and ``--interval``: the command runs again after each interval, and an error ends it."""

    @functools.wraps(command)
    def watched(*words: Any, watch: bool, interval: float, **named: Any) -> Any:
        if not watch:
            refuse(["interval"], "without --watch")
            return command(*words, **named)
        on_screen = terminal.is_addressable()
        if on_screen:
            click.echo(_CLEAR, nl=False)
        while True:
            if on_screen:
                _draw(_written(lambda: command(*words, **named)))
            else:
                with contextlib.suppress(click.exceptions.Exit):
                    command(*words, **named)
                sys.stdout.flush()
            time.sleep(interval)

    every = click.option("--interval", type=duration, default="2s", show_default=True, help="Of --watch.")
    again = click.option("-w", "--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
    return again(every(watched))


class _Screen(io.StringIO):
    """What is written for a terminal, before it is drawn at once."""

    def __init__(self) -> None:
        super().__init__()
        self._terminal = sys.stdout

    def fileno(self) -> int:
        """Return the file of the terminal, which says how wide it is."""
        return self._terminal.fileno()

    def isatty(self) -> bool:
        """Return True: colours and widths are those of the terminal."""
        return True


def _written(command: Callable[[], Any]) -> list[str]:
    """Run a command; return the lines that it wrote. An exit code for what it found does not end the watching."""
    screen = _Screen()
    with (
        contextlib.redirect_stdout(screen),
        contextlib.redirect_stderr(screen),
        contextlib.suppress(click.exceptions.Exit),
    ):
        command()
    return screen.getvalue().splitlines()


def _draw(lines: list[str]) -> None:
    """Draw lines from the top, with the number of those that the screen has no space for."""
    space = terminal.size().lines - 1
    if len(lines) > space:
        lines = [*lines[: space - 1], f"... {len(lines) - space + 1} more lines"]
    terminal.draw([*lines, ""])
