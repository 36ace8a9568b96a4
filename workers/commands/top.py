"""``rmq top``: rates, groups and workers of a store, live.

Lines are drawn by hand: a frame costs microseconds, and nothing is needed for it. Numbers are those of samples, as in
metrics and in the dashboard; a rate is the growth of a counter over the time between two of them.
"""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.commands.frame import SORTS, Wish, lines_of, rows_of, sorted_by
from rmqclient.workers.commands.period import show_since
from rmqclient.workers.console import terminal
from rmqclient.workers.console.layout import shortened
from rmqclient.workers.console.opening import StoreCannotBeOpened
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import duration, moment, refuse, with_output, with_store

if TYPE_CHECKING:
    from rmqclient.metrics import Observation

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_END = "q"
_ESCAPE_S = 0.02
"""Seconds within which the bytes of one key come."""
_SHOWS = {"g": "g", "w": "w", "a": "gw"}
_PAGE = 10
_SCROLLS = {
    "j": 1,
    "k": -1,
    "\x1b[B": 1,
    "\x1b[A": -1,
    "\x1b[6~": _PAGE,
    "\x1b[5~": -_PAGE,
}
"""Lines that a key goes down."""
_LIVE_OPTIONS = ("once", "frames", "interval", "message_age")
_HELP = (
    "q          end",
    "space      pause, and go on",
    "j, down    one line down; page down: ten",
    "k, up      one line up; page up: ten",
    "s          sort by the next column",
    "i          show idle groups, each on its line",
    "g, w, a    groups alone, workers alone, both",
    "?          this, and back",
    "",
    "DEAD  dead letters that wait: `rmq dlq ls GROUP`     STATE  docs/operate/shell.md",
)


@click.command()
@click.option("--once", is_flag=True, help="Sample twice, an interval apart, print, and end.")
@click.option("-n", "--frames", type=click.IntRange(min=1), help="End after N frames.")
@click.option("--interval", type=duration, default="1s", show_default=True)
@click.option("--sort", type=click.Choice(SORTS), default="lag", show_default=True)
@click.option("--filter", "wanted", default="", help="Only groups whose name has this text.")
@click.option("--message-age", type=duration, default="5m", show_default=True, help="Time after which a handler hangs.")
@click.option("--since", type=moment, help="Print what groups did since 1h ago, or since 2026-11-20T10:00Z, and end.")
@with_store
@with_output
def top(
    once: bool,
    frames: int | None,
    interval: float,
    sort: str,
    wanted: str,
    message_age: float,
    since: int | None,
    root: Path | str,
    out: Output,
) -> None:
    """Show rates, lag and states of groups, and what each worker runs, until q is pressed.

    With --since, show what each group did from then until now, from the history of the last 30 days: rates, the part of
    the attempts that failed, how long half and 95 % of the messages waited, how long 95 % of the calls ran, and when,
    at these rates, nothing will wait any more.

    Keys: ? shows them all; j and k scroll, s sorts by the next column, i shows idle groups, w workers alone.
    """
    from rmqclient.errors import NotOnCluster, QueueError

    if not isinstance(root, Path):
        raise NotOnCluster("top reads the shared memory of a store: of a cluster, see `rmq group ls`")
    if since is not None:
        refuse(_LIVE_OPTIONS, "beside --since, which prints the history once")
        show_since(root, since, sort, wanted, out)
        return
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("top draws on a terminal: use --once, with -o json for a program")
    if once:
        refuse(["frames"], "beside --once")
    else:
        refuse(["output", "query"], "without --once, as top draws on a terminal")
    view = View(root, sort=sort, wanted=wanted, hung_after_s=message_age)
    try:
        with contextlib.closing(view):
            view.look()
            if not once:
                _live(view, interval, frames)
                return
            time.sleep(interval)
            view.look()
    except (QueueError, OSError) as error:
        raise StoreCannotBeOpened(str(error)) from error
    if out.is_for_people:
        on_terminal = sys.stdout.isatty()
        click.echo("\n".join(view.lines(_size(), colours=terminal.has_colours(), idle=not on_terminal)))
    else:
        out.write(view.rows())


class View:
    """What the last two looks at a store tell, and what a person wants to see of it. For one thread."""

    def __init__(self, root: Path, *, sort: str, wanted: str, hung_after_s: float) -> None:
        from rmqclient.metrics import DeadLetterCount, Sampler

        self._sort = sort
        self._wish = Wish()
        self._is_helping = False
        self._root = root
        self._wanted = wanted
        self._hung_after_s = hung_after_s
        self._sampler = Sampler(root)
        self._letters = DeadLetterCount(root)
        self._before: Observation | None = None
        self._found: dict[str, Any] = {}

    def look(self) -> None:
        """Look once; rates are those since the look before, None in the first one. Raises as ``Sampler.sample``."""
        now = self._sampler.sample()
        before, self._before = self._before or now, now
        letters = self._letters.by_group(now.queues)
        self._found = {"store": str(self._root), **rows_of(before, now, letters, self._hung_after_s)}

    def rows(self) -> dict[str, Any]:
        """Return what the last look found, its groups chosen and sorted, for a program."""
        groups = [row for row in self._found["groups"] if self._wanted in row["group"]]
        return {**self._found, "groups": sorted_by(self._sort, groups)}

    def lines(self, size: os.terminal_size, *, colours: bool = False, idle: bool = False) -> list[str]:
        """Return the same as lines for a person: the help, if that was asked for."""
        if self._is_helping:
            return [line[: size.columns] for line in _HELP[: size.lines - 1]]
        wish = self._wish._replace(colours=colours, idle=idle or self._wish.idle)
        return lines_of(self.rows(), wish, size)

    @property
    def note(self) -> str:
        """What can be done, for the last line."""
        return f"q ends   ? keys   s sorted by {self._sort}   j k scroll   i idle groups"

    def press(self, key: str) -> None:
        """Do what a key says; other keys than those of the help do nothing."""
        self._is_helping = key == "?" and not self._is_helping
        wish = self._wish
        if key == "s":
            self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        elif key in _SHOWS:
            self._wish = wish._replace(shows=_SHOWS[key], first=0)
        elif key == "i":
            self._wish = wish._replace(idle=not wish.idle, first=0)
        elif key in _SCROLLS:
            rows = len(self._found["groups" if "g" in wish.shows else "workers"])
            self._wish = wish._replace(first=max(0, min(rows, wish.first + _SCROLLS[key])))

    def close(self) -> None:
        """Let go of the store."""
        self._sampler.close()


def _size() -> os.terminal_size:
    """Return the size of the terminal; off a terminal nothing is cut off."""
    return terminal.size() if sys.stdout.isatty() else os.terminal_size((10_000, 10_000))


def _live(view: View, interval: float, frames: int | None) -> None:
    """Draw a frame after each sample, and again after each key, until q, Ctrl-C, or the last of ``frames``."""
    looks, paused, look_at = 1, False, time.monotonic() + interval
    with _keys() as pressed:
        while True:
            lines = view.lines(terminal.size(), colours=terminal.has_colours())
            _draw(lines, "-- paused --" if paused else view.note)
            key = pressed(max(0.0, look_at - time.monotonic()))
            if key == _END:
                return
            paused ^= key == " "
            view.press(key)
            if time.monotonic() >= look_at:
                if looks == frames:
                    return
                look_at = time.monotonic() + interval
                looks += not paused
                if not paused:
                    view.look()


def _draw(lines: list[str], note: str) -> None:
    """Draw a frame over the one before; where the cursor cannot be moved, below it."""
    if not terminal.is_addressable():
        click.echo("\n".join([*lines, ""]))
        return
    note = shortened(note, terminal.size().columns - 1)
    terminal.draw([*lines, note])


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Take the terminal; the function that is given waits for a key, at most so many seconds. Ctrl-C is a key, too.

    A KeyboardInterrupt would be raised anywhere in a look, and an interpreter drops it where nobody can catch it.
    """
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    former = termios.tcgetattr(descriptor)
    interrupted, interrupt = os.pipe()

    def pressed(seconds: float) -> str:
        there = select.select([descriptor, interrupted], [], [], seconds)[0]
        if interrupted in there:
            return _END
        return _key(descriptor) if there else ""

    def press_interrupt(*_: object) -> None:
        os.write(interrupt, b"\0")

    handler = signal.signal(signal.SIGINT, press_interrupt)
    try:
        tty.setcbreak(descriptor)
        sys.stdout.write(_ENTER if terminal.is_addressable() else "")
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, former)
        sys.stdout.write(_LEAVE if terminal.is_addressable() else "")
        sys.stdout.flush()
        signal.signal(signal.SIGINT, handler)
        os.close(interrupted)
        os.close(interrupt)


def _key(descriptor: int) -> str:
    """Return the key that was pressed, which is several bytes for an arrow; the end of the input ends the command."""
    key = os.read(descriptor, 1).decode("latin-1")
    while key.startswith("\x1b") and not re.fullmatch(r"\x1b[[O][0-9;]*[A-Za-z~]", key):
        if not select.select([descriptor], [], [], _ESCAPE_S)[0]:
            break
        key += os.read(descriptor, 1).decode("latin-1")
    return key or _END
