"""``rmq top``: rates, groups and workers of a store, live.

Lines are drawn by hand: a frame costs microseconds, and nothing is needed for it. Numbers come from two glances at the
runtime file; a rate is their difference over the time between them.
"""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.console.opening import StoreCannotBeOpened
from rmqclient.workers.console.output import write
from rmqclient.workers.console.parameters import duration, with_output, with_store

if TYPE_CHECKING:
    from rmqclient.local.glance import Glance

_SORTS = ("lag", "in_s", "out_s", "group")
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@click.command()
@click.option("--once", is_flag=True, help="Look twice, an interval apart, print, and end.")
@click.option("-n", "--frames", type=click.IntRange(min=1), help="End after so many frames.")
@click.option("--interval", type=duration, default="1s", show_default=True)
@click.option("--sort", type=click.Choice(_SORTS), default="lag", show_default=True)
@click.option("--filter", "wanted", default="", help="Only groups whose name has this text.")
@click.option("--message-age", type=duration, default="5m", show_default=True, help="A handler hangs after so long.")
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
    output: str,
    query: str | None,
) -> None:
    """Show rates, lag and states of groups, and what each worker runs, until q is pressed.

    Keys: q ends, space pauses, s sorts by the next column, g and w show groups or workers only, a shows both.
    """
    from rmqclient.errors import NotOnCluster
    from rmqclient.local.glance import Glance, Unreadable

    if not isinstance(root, Path):
        raise NotOnCluster("top reads the shared memory of a store: of a cluster, see `rmq group ls`")
    try:
        glance = Glance(str(root))
    except Unreadable as error:
        raise StoreCannotBeOpened(str(error)) from error
    view = View(glance, sort=sort, wanted=wanted, hung_after_s=message_age)
    with glance:
        if once:
            view.look()
            time.sleep(interval)
            found = view.look()
            if output == "table" and query is None:
                click.echo("\n".join(view.lines(found, _size())))
            else:
                write(found, output=output, query=query)
            return
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise click.UsageError("top draws on a terminal: use --once, with -o json for a program")
        _live(view, interval, frames)


class View:
    """What two looks at a store tell, and how it is drawn."""

    def __init__(self, glance: Glance, *, sort: str, wanted: str, hung_after_s: float) -> None:
        self.sort = sort
        self.shows = "gw"
        self._glance = glance
        self._wanted = wanted
        self._hung_after_s = hung_after_s
        self._before: tuple[float, dict[str, int], dict[str, int]] | None = None

    def look(self) -> dict[str, Any]:
        """Look once; rates are those since the look before, and 0 in the first one."""
        from rmqclient.health import findings

        glance, now = self._glance, time.monotonic()
        queues = glance.queues()
        rows: dict[str, list[Any]] = {}
        for each in glance.group_queues(queues):
            rows.setdefault(each.group.partition("|")[0], []).append(each)
        sent: dict[str, int] = {}
        for queue in queues:
            sent[queue.topic] = sent.get(queue.topic, 0) + queue.max_offset
        done = {name: sum(each.committed_offset for each in found) for name, found in rows.items()}
        before, self._before = self._before, (now, sent, done)
        members = findings.members_by_group(glance.members())
        letters = {name: _span(found) for name, found in glance.dead_letters(queues).items()}
        running = glance.running()
        groups = [
            self._group(name, found, members.get(name, 0), letters.get(name, 0), before)
            for name, found in rows.items()
            if self._wanted in name and not name.startswith("CID_RMQ_SYS")
        ]
        seconds = now - before[0] if before else 0.0
        own = {topic: count for topic, count in sent.items() if not topic.startswith(("%", "RMQ_SYS", "rmq_sys"))}
        return {
            "store": glance.root,
            "disk_used_ratio": round(glance.disk_used_ratio(), 4),
            "poisoned": glance.word("poisoned"),
            "housekeeper": glance.has_housekeeper,
            "in_s": sum(_rate(count, before and before[1].get(topic), seconds) for topic, count in own.items()),
            "out_s": sum(group["out_s"] for group in groups),
            "running": len(running),
            "groups": sorted(groups, key=self._order),
            "workers": [self._worker(each, running) for each in glance.workers()],
        }

    def lines(self, found: Mapping[str, Any], size: os.terminal_size) -> list[str]:
        """Return what a look found as lines for a person, cut to the size of the terminal."""
        keeper = "at work" if found["housekeeper"] else "none"
        state = "  POISONED" if found["poisoned"] else ""
        lines = [
            (
                f"{found['store']}  disk {found['disk_used_ratio']:.0%}  in {found['in_s']:,.0f}/s  "
                f"out {found['out_s']:,.0f}/s  running {found['running']}  housekeeper {keeper}{state}"
            ),
            "",
        ]
        if "g" in self.shows:
            lines.append(
                f"{'GROUP':<24} {'IN/S':>8} {'OUT/S':>8} {'LAG':>10} {'OLDEST':>8} {'RETRY':>6} {'DEAD':>6}  STATE"
            )
            lines += [
                f"{row['group'][:24]:<24} {row['in_s']:>8,.0f} {row['out_s']:>8,.0f} {row['lag']:>10,} "
                f"{_age(row['oldest_s']):>8} {row['retries']:>6,} {row['dead_letters']:>6,}  {row['state']}"
                for row in found["groups"]
            ] or ["no groups yet"]
            lines.append("")
        if "w" in self.shows:
            lines.append(f"{'WORKER':>6} {'PID':>8} {'BEAT':>8} {'MIB':>7}  STATE")
            lines += [
                f"{row['slot']:>6} {row['pid']:>8} {_age(row['beat_age_s']):>8} {row['resident_mib'] or 0:>7,.0f}  "
                f"{row['state']}"
                for row in found["workers"]
            ] or ["no workers"]
        return [line[: size.columns] for line in lines[: size.lines - 1]]

    def next_sort(self) -> None:
        """Sort by the next column."""
        self.sort = _SORTS[(_SORTS.index(self.sort) + 1) % len(_SORTS)]

    def _order(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return (row["group"],) if self.sort == "group" else (-row[self.sort], row["group"])

    def _group(
        self,
        name: str,
        rows: list[Any],
        members: int,
        dead: int,
        before: tuple[float, dict[str, int], dict[str, int]] | None,
    ) -> dict[str, Any]:
        from rmqclient.health import findings

        assert self._before is not None
        seconds = self._before[0] - before[0] if before else 0.0
        topics = sorted({each.queue.topic for each in rows if not each.queue.topic.startswith("%RETRY%")})
        stored = [
            self._glance.stored_ms(each.queue, max(each.committed_offset, each.queue.min_offset))
            for each in rows
            if each.lag
        ][:64]
        oldest = min((each for each in stored if each is not None), default=None)
        return {
            "group": name,
            "topics": topics,
            "members": members,
            "in_s": sum(_rate(self._before[1][topic], before and before[1].get(topic), seconds) for topic in topics),
            "out_s": _rate(self._before[2][name], before and before[2].get(name), seconds),
            "lag": sum(each.lag for each in rows),
            "oldest_s": None if oldest is None else round(time.time() - oldest / 1000, 3),
            "retries": sum(each.lag for each in rows if each.queue.topic.startswith("%RETRY%")),
            "dead_letters": dead,
            "state": findings.group_state(rows, members),
        }

    def _worker(self, each: Any, running: list[Any]) -> dict[str, Any]:
        from rmqclient.health import findings, words

        place = findings.running_place(each.pid, running)
        state = words.worker_state(
            each.state, message_age_s=each.message_age_s, hung_after_s=self._hung_after_s, place=place
        )
        return {
            "slot": each.slot,
            "pid": each.pid,
            "supervisor_pid": each.supervisor_pid,
            "beat_age_s": None if each.beat_age_s is None else round(each.beat_age_s, 3),
            "resident_mib": _resident_mib(each.pid),
            "state": state,
        }


def _size() -> os.terminal_size:
    """Return the size of the terminal; off a terminal nothing is cut off."""
    return shutil.get_terminal_size() if sys.stdout.isatty() else os.terminal_size((10_000, 10_000))


def _live(view: View, interval: float, frames: int | None) -> None:
    with _keys() as pressed:
        paused, drawn = False, 0
        found = view.look()
        while frames is None or drawn < frames:
            size = shutil.get_terminal_size()
            text = f"{_CLEAR_LINE}\r\n".join(view.lines(found, size))
            sys.stdout.write(f"{_HOME}{text}{_CLEAR_LINE}\r\n{'-- paused --' if paused else ''}{_CLEAR_BELOW}")
            sys.stdout.flush()
            drawn += 1
            key = pressed(interval)
            if key in ("q", "\x03"):
                return
            paused ^= key == " "
            if key == "s":
                view.next_sort()
            view.shows = {"g": "g", "w": "w", "a": "gw"}.get(key, view.shows)
            found = found if paused else view.look()


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Take the terminal; the function that is given waits for a key, at most so many seconds."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    former = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        sys.stdout.write(_ENTER)
        yield (
            lambda seconds: (
                os.read(descriptor, 1).decode("latin-1") if select.select([descriptor], [], [], seconds)[0] else ""
            )
        )
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, former)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _span(queues: list[Any]) -> int:
    return sum(queue.max_offset - queue.min_offset for queue in queues)


def _rate(now: int, before: int | None, seconds: float) -> float:
    """Return a rate; a group that was moved back has none."""
    return round(max(0, now - before) / seconds, 1) if before is not None and seconds > 0 else 0.0


def _age(seconds: float | None) -> str:
    from rmqclient.health import words

    return "-" if seconds is None else words.age(seconds)


def _resident_mib(pid: int) -> float | None:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1_048_576, 1)
