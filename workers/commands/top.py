"""``rmq top``: rates, groups and workers of a store, live.

Lines are drawn by hand: a frame costs microseconds, and nothing is needed for it. Numbers are those of samples, as in
metrics and in the dashboard; a rate is the growth of a counter over the time between two of them.
"""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.commands.frame import SORTS, lines_of, rows_of, sorted_by
from rmqclient.workers.console.opening import StoreCannotBeOpened
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import duration, with_output, with_store

if TYPE_CHECKING:
    from rmqclient.metrics import Observation

_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_END = "q"


@click.command()
@click.option("--once", is_flag=True, help="Sample twice, an interval apart, print, and end.")
@click.option("-n", "--frames", type=click.IntRange(min=1), help="End after N frames.")
@click.option("--interval", type=duration, default="1s", show_default=True)
@click.option("--sort", type=click.Choice(SORTS), default="lag", show_default=True)
@click.option("--filter", "wanted", default="", help="Only groups whose name has this text.")
@click.option("--message-age", type=duration, default="5m", show_default=True, help="Time after which a handler hangs.")
@with_store
@with_output
def top(
    once: bool,
    frames: int | None,
    interval: float,
    sort: str,
    wanted: str,
    message_age: float,
    root: Path | str,
    out: Output,
) -> None:
    """Show rates, lag and states of groups, and what each worker runs, until q is pressed.

    Keys: q ends, space pauses, s sorts by the next column, g and w show groups or workers only, a shows both.
    """
    from rmqclient.errors import NotOnCluster, QueueError

    if not isinstance(root, Path):
        raise NotOnCluster("top reads the shared memory of a store: of a cluster, see `rmq group ls`")
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("top draws on a terminal: use --once, with -o json for a program")
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
        click.echo("\n".join(view.lines(_size())))
    else:
        out.write(view.rows())


class View:
    """What the last two looks at a store tell, and what a person wants to see of it. For one thread."""

    def __init__(self, root: Path, *, sort: str, wanted: str, hung_after_s: float) -> None:
        from rmqclient.metrics import DeadLetterCount, Sampler

        self._sort = sort
        self._shows = "gw"
        self._root = root
        self._wanted = wanted
        self._hung_after_s = hung_after_s
        self._sampler = Sampler(root)
        self._letters = DeadLetterCount(root)
        self._before: Observation | None = None
        self._found: dict[str, Any] = {}

    def look(self) -> None:
        """Look once; rates are those since the look before, and 0 in the first one. Raises as ``Sampler.sample``."""
        now = self._sampler.sample()
        before, self._before = self._before or now, now
        letters = self._letters.by_group(now.queues)
        self._found = {"store": str(self._root), **rows_of(before, now, letters, self._hung_after_s)}

    def rows(self) -> dict[str, Any]:
        """Return what the last look found, its groups chosen and sorted, for a program."""
        groups = [row for row in self._found["groups"] if self._wanted in row["group"]]
        return {**self._found, "groups": sorted_by(self._sort, groups)}

    def lines(self, size: os.terminal_size) -> list[str]:
        """Return the same as lines for a person."""
        return lines_of(self.rows(), self._shows, size)

    def press(self, key: str) -> None:
        """Do what a key says; other keys than those of the help do nothing."""
        if key == "s":
            self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self._shows = {"g": "g", "w": "w", "a": "gw"}.get(key, self._shows)

    def close(self) -> None:
        """Let go of the store."""
        self._sampler.close()


def _size() -> os.terminal_size:
    """Return the size of the terminal; off a terminal nothing is cut off."""
    return shutil.get_terminal_size() if sys.stdout.isatty() else os.terminal_size((10_000, 10_000))


def _live(view: View, interval: float, frames: int | None) -> None:
    """Draw a frame after each sample, and again after each key, until q, Ctrl-C, or the last of ``frames``."""
    looks, paused, look_at = 1, False, time.monotonic() + interval
    with _keys() as pressed:
        while True:
            _draw(view.lines(shutil.get_terminal_size()), "-- paused --" if paused else "")
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
    text = f"{_CLEAR_LINE}\r\n".join([*lines, note])
    sys.stdout.write(f"{_HOME}{text}{_CLEAR_LINE}{_CLEAR_BELOW}")
    sys.stdout.flush()


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
        return (os.read(descriptor, 1).decode("latin-1") or _END) if there else ""

    def press_interrupt(*_: object) -> None:
        os.write(interrupt, b"\0")

    handler = signal.signal(signal.SIGINT, press_interrupt)
    try:
        tty.setcbreak(descriptor)
        sys.stdout.write(_ENTER)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, former)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        signal.signal(signal.SIGINT, handler)
        os.close(interrupted)
        os.close(interrupt)
