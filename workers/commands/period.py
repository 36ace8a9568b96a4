"""Period: what ``rmq top --since`` shows of the history of a store."""

# ruff: noqa: PLC0415 - imports inside functions: the help of commands is quick

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.console import terminal
from rmqclient.workers.console.layout import local_second, shortened, width_of
from rmqclient.workers.console.opening import StoreCannotBeOpened
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.status import rounded

if TYPE_CHECKING:
    from rmqclient.metrics import Figures

_HEADS = ("GROUP", "IN/S", "OUT/S", "FAILED", "WAIT50", "WAIT95", "RUN95", "LAG", "DRAIN")
_SORTS = ("lag", "in_s", "out_s", "group")
_LEAST = 6
"""Columns that the name of a group, or of a store, keeps."""


def show_since(root: Path, since_ms: int, sort: str, wanted: str, out: Output) -> None:
    """Print what each group did since then. Raises UsageError, StoreCannotBeOpened."""
    from rmqclient.errors import QueueError
    from rmqclient.metrics import figures_of, known_s

    if sort not in _SORTS:
        raise click.UsageError(f"--since has no {sort}: sort by {', '.join(_SORTS)}")
    now_ms = round(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
    try:
        rows = [_row(each) for each in figures_of(root, since_ms, now_ms) if wanted in each.group]
        seconds = known_s(root, since_ms, now_ms)
    except (QueueError, OSError) as error:
        raise StoreCannotBeOpened(str(error)) from error
    rows.sort(key=lambda row: (row["group"] if sort == "group" else -row[sort], row["group"]))
    if out.is_for_people and out.where is None:
        click.echo("\n".join(_lines(root, since_ms, seconds, rows)))
    else:
        out.write(rows)


def _row(each: Figures) -> dict[str, Any]:
    return {
        "group": each.group,
        "seconds": each.seconds,
        "published": each.row.published,
        "handled": each.row.handled,
        "failed": each.row.failed,
        "retried": each.row.retried,
        "dead_lettered": each.row.dead_lettered,
        "skipped": each.row.skipped,
        "lost": each.row.lost,
        "in_s": rounded(each.published_per_s, 4),
        "out_s": rounded(each.finished_per_s, 4),
        "failed_ratio": rounded(each.failed_ratio, 4),
        "wait_p50_s": rounded(each.waited_s(0.5), 4),
        "wait_p95_s": rounded(each.waited_s(0.95), 4),
        "run_p95_s": rounded(each.ran_s(0.95), 4),
        "lag": each.lag,
        "most_lag": each.row.lag,
        "drained_in_s": rounded(each.drained_in_s, 4),
    }


def _lines(root: Path, since_ms: int, known_s: float, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    columns = terminal.columns()
    known = f"  since {local_second(since_ms)}, of which the history knows {_time(known_s)}"
    name = str(root) if columns is None else shortened(str(root), max(_LEAST, columns - len(known)))
    yield name + known
    yield ""
    cells = [_HEADS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in list(zip(*cells, strict=True))[1:]]
    numbers = [" ".join(map(str.rjust, row[1:], widths)) for row in cells]
    name_width = max(width_of(row[0]) for row in cells)
    if columns is not None:
        name_width = min(name_width, max(_LEAST, columns - 1 - len(numbers[0])))
    for (name, *_), rest in zip(cells, numbers, strict=True):
        shown = shortened(name, name_width)
        yield f"{shown}{' ' * (name_width - width_of(shown))} {rest}"[:columns]
    if not rows:
        yield "no group did anything since then" if known_s else "there is no history yet"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    drained = "never" if row["drained_in_s"] is None else _time(row["drained_in_s"]) if row["lag"] else "-"
    return (
        row["group"],
        _rate(row["in_s"]),
        _rate(row["out_s"]),
        "-" if row["failed_ratio"] is None else f"{row['failed_ratio']:.1%}",
        _time(row["wait_p50_s"]),
        _time(row["wait_p95_s"]),
        _time(row["run_p95_s"]),
        f"{row['lag']:,}",
        drained,
    )


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.2g}"


def _time(seconds: float | None) -> str:
    from rmqclient.health import words

    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.2g} ms" if seconds < 0.0995 else f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else words.age(seconds)
