"""Period: what ``rmq top --since`` shows of the history of a store."""

# ruff: noqa: PLC0415 - imports inside functions: the help of commands is quick

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.console.opening import StoreCannotBeOpened
from rmqclient.workers.console.output import Output

if TYPE_CHECKING:
    from rmqclient.metrics import Figures

_HEAD = (
    f"{'GROUP':<17} {'IN/S':>7} {'HANDLED/S':>9} {'FAILED':>6} {'WAIT50':>7} {'WAIT95':>7} {'RUN95':>7} "
    f"{'LAG':>7} {'DRAIN':>5}"
)
_SORTS = {"lag": "lag", "in_s": "in_s", "out_s": "handled_s", "group": "group"}


def show_since(root: Path, since_ms: int, sort: str, wanted: str, out: Output) -> None:
    """Print what each group did since then. Raises UsageError, StoreCannotBeOpened."""
    from rmqclient.errors import QueueError
    from rmqclient.metrics import figures_of

    if sort not in _SORTS:
        raise click.UsageError(f"--since has no {sort}: sort by {', '.join(_SORTS)}")
    now_ms = round(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
    try:
        rows = [_row(each) for each in figures_of(root, since_ms, now_ms) if wanted in each.group]
    except (QueueError, OSError) as error:
        raise StoreCannotBeOpened(str(error)) from error
    key = _SORTS[sort]
    rows.sort(key=lambda row: (row["group"] if key == "group" else -row[key], row["group"]))
    if out.is_for_people:
        click.echo("\n".join(_lines(root, since_ms, rows)))
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
        "in_s": _rounded(each.published_per_s),
        "handled_s": _rounded(each.handled_per_s),
        "failed_ratio": _rounded(each.failed_ratio),
        "wait_p50_s": _rounded(each.waited_s(0.5)),
        "wait_p95_s": _rounded(each.waited_s(0.95)),
        "run_p95_s": _rounded(each.ran_s(0.95)),
        "lag": each.lag,
        "most_lag": each.row.lag,
        "drained_in_s": _rounded(each.drained_in_s),
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)


def _lines(root: Path, since_ms: int, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    known_s = max((row["seconds"] for row in rows), default=0.0)
    yield f"{root}  since {_local(since_ms)}, of which the history knows {_time(known_s)}"
    yield ""
    yield _HEAD
    yield from map(_line, rows) if rows else ["nothing: no group did anything since then, or there is no history yet"]


def _line(row: Mapping[str, Any]) -> str:
    failed = "-" if row["failed_ratio"] is None else f"{row['failed_ratio']:.1%}"
    drained = "never" if row["drained_in_s"] is None else _time(row["drained_in_s"]) if row["lag"] else "-"
    return (
        f"{row['group'][:17]:<17} {_rate(row['in_s']):>7} {_rate(row['handled_s']):>9} {failed:>6} "
        f"{_time(row['wait_p50_s']):>7} {_time(row['wait_p95_s']):>7} {_time(row['run_p95_s']):>7} "
        f"{row['lag']:>7,} {drained:>5}"
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


def _local(at_ms: int) -> str:
    return f"{datetime.datetime.fromtimestamp(at_ms / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
