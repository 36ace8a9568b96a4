"""Page: ``docs/results/peers.md`` and its pictures, made of a result. Nothing on it is written by hand.

A peer is compared with the best of our rows that promises at least as much as it does: ours without a flush is not
held against a peer that flushes.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import REPOSITORY
from benchmarks.measure import Figure, Size
from benchmarks.peers import plots, targets
from benchmarks.peers.everybody import EVERYBODY
from benchmarks.peers.peer import Level
from benchmarks.peers.result import Result, Row
from benchmarks.peers.workloads import commits, consuming, delayed, latency, order, sending, tasks
from benchmarks.report import markdown_table, shown

PAGE = REPOSITORY / "docs" / "results" / "peers.md"

_RANK = {level.value: level.rank for level in Level}
_MISSED = "missed"
_BEFORE = (
    "*Before* is what the first run found that measured the ratio: of the commits a full run on two cores of an AMD "
    "EPYC, of the others a quick run on two cores of an Intel Xeon. *Measured* is the run of this page."
)
_AHEAD = 1.05
"""Nearer than that to each other nobody is ahead."""


@dataclass(frozen=True, slots=True)
class Group:
    """A section: the figures whose name begins with ``prefix``, one column for each."""

    title: str
    prefix: str
    text: str
    more_is_better: bool = True
    picture: str = ""
    """The name of the file; empty for none."""
    drawn: tuple[str, ...] = ()
    """Which columns are in it: one as bars, several as a range."""


_PERCENTILES = ("50 %", "99 %", "99.9 %")
QUEUE_GROUPS = (
    Group(
        "Send, each answered before the next",
        sending.SINGLE,
        "One process, one thread, one message after the other.",
        picture="send",
        drawn=("100 B",),
    ),
    Group(
        "Send many",
        sending.MANY,
        "One process, in the way of each peer that the first table names: batches, pipelines, transactions, windows.",
        picture="send-many",
        drawn=("100 B",),
    ),
    Group(
        "Commits of sixteen senders",
        commits.COMMITTED,
        "Each is a process that sends messages of 100 B one after the other; those of RocketMQ's Java client are "
        "threads of one process. Only peers that flush to the disk before each answer.",
    ),
    Group(
        "Consume and acknowledge",
        consuming.CONSUMED,
        "One process works off what the two before have sent, with a handler that does nothing.",
        picture="consume",
        drawn=("100 B",),
    ),
    Group(
        "Latency",
        f"{latency.LATENCY} at",
        "From when a message of 100 B was due to be sent to the first line of the handler in another process: a send "
        "that comes late, because the one before took long, counts from when it was due (coordinated omission).",
        more_is_better=False,
        picture="latency",
        drawn=_PERCENTILES,
    ),
    Group(
        "Drain of a backlog while it grows",
        "drain of a backlog while it grows",
        "A consumer works off a backlog while a sender sends one by one as fast as it can. Messages of 100 B.",
    ),
    Group(
        "In order of keys",
        order.ORDERED,
        "Two consumers share 1,024 keys; the order of each is checked. Peers that are missing have no such order.",
    ),
    Group(
        "Delayed messages",
        delayed.DELAYED,
        "How late a message is that was to come after one second; early is negative. Peers that are missing have no "
        "delays of their own.",
        more_is_better=False,
    ),
    Group(
        "Start and memory",
        "start to first message",
        "From the start of the server over an empty store to the first message handled by a new client, which starts "
        "meanwhile.",
        more_is_better=False,
    ),
    Group(
        "Memory of the server",
        "memory of the server",
        "Of all its processes, without pages of files. Peers that are missing have no server.",
        more_is_better=False,
    ),
    Group(
        "Disk",
        sending.DISK,
        "What the files grow by for each message; of ours the bytes used, for the files are reserved ahead.",
        more_is_better=False,
    ),
)
FRAMEWORK_GROUPS = (
    Group(
        "No-op tasks through two workers", tasks.NOOP, "Put in before the workers start.", picture="tasks", drawn=("",)
    ),
    Group(
        "Tasks of 1 ms through two workers",
        tasks.SHORT,
        "A task sleeps for 1 ms; a worker runs one at a time, so 2,000 a second is the most there can be.",
    ),
    Group("Putting in", tasks.ENQUEUED, "One process, one no-op task after the other."),
    Group(
        "Latency of tasks",
        f"{tasks.LATENCY} at",
        "From when the task was due to be put in to its first line.",
        more_is_better=False,
        picture="task-latency",
        drawn=_PERCENTILES,
    ),
    Group("Delayed tasks", tasks.DELAYED, "How late a task is that was to run after 1 s.", more_is_better=False),
    Group("Start", tasks.FIRST, "From the start of the broker to the first task done.", more_is_better=False),
)


class Table:
    """The figures of one group."""

    def __init__(self, result: Result, group: Group, *, framework: bool) -> None:
        self.group = group
        self.rows = [row for row in result.rows if row.framework is framework]
        self.figures: dict[tuple[str, str], Figure] = {}
        self.columns: list[str] = []
        for figure in result.figures:
            if figure.case.startswith(group.prefix):
                column = figure.case.removeprefix(group.prefix).rpartition(", ")[2].strip(" :,")
                self.figures[figure.name, column] = figure
                if column not in self.columns:
                    self.columns.append(column)
        self.rows = [row for row in self.rows if any((row.name, column) in self.figures for column in self.columns)]

    def ratio(self, row: Row, column: str) -> float | None:
        """Return how many times as good ours is, of the like promise; None where there is nothing to compare."""
        theirs = self.figures.get((row.name, column))
        candidates = [self.figures.get((each.name, column)) for each in self.rows if each.ours and _promises(each, row)]
        ratios = [_times(ours, theirs, self.group) for ours in candidates if ours and theirs]
        return max((ratio for ratio in ratios if ratio is not None), default=None)

    def markdown(self) -> str:
        """Return the table, the best first within each promise."""
        header = ["", "an answer survives", *self.columns, f"ours to it{self._compared}"]
        lines = []
        for row in self._sorted():
            cells = [_cell(self.figures.get((row.name, column))) for column in self.columns]
            ratio = None if row.ours else self.ratio(row, self.columns[0])
            lines.append([f"**{row.title}**" if row.ours else row.title, row.level, *cells, _ratio(ratio)])
        return markdown_table(header, lines)

    @property
    def _compared(self) -> str:
        return f", {self.columns[0]}" if len(self.columns) > 1 else ""

    def _sorted(self) -> list[Row]:
        def key(row: Row) -> tuple[int, float]:
            figure = self.figures.get((row.name, self.columns[0]))
            value = figure.median if figure else 0.0
            return _RANK[row.level], -value if self.group.more_is_better else value

        return sorted(self.rows, key=key)

    @property
    def marks(self) -> list[plots.Mark]:
        """Return the rows that have every value that is drawn."""
        return [mark for row in self._sorted() if (mark := self._mark(row)) is not None]

    def picture(self) -> str:
        """Return the SVG."""
        drawn = f" ({', '.join(self.group.drawn)})" if any(self.group.drawn) else ""
        unit = next(iter(self.figures.values())).unit
        draw = plots.bars if len(self.group.drawn) == 1 else plots.ranges
        return draw(f"{self.group.title}{drawn}, {unit}, logarithmic", self.marks)

    def _mark(self, row: Row) -> plots.Mark | None:
        figures = [figure for each in self.group.drawn if (figure := self.figures.get((row.name, each)))]
        if len(figures) < len(self.group.drawn):
            return None
        one = figures[0]
        values = (one.low, one.median, one.high) if len(figures) == 1 else tuple(each.median for each in figures)
        return plots.Mark(
            row.title, values, shown(one.median, one.unit), row.ours, f"An answered send survives {row.level}:"
        )


def write(result: Result, path: Path) -> None:
    """Write the page, and its pictures into a folder of its name."""
    pictures = path.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    parts = [_head(result), _promises_table(result), _missing(result)]
    tables = [Table(result, group, framework=False) for group in QUEUE_GROUPS]
    tables += [Table(result, group, framework=True) for group in FRAMEWORK_GROUPS]
    tables = [table for table in tables if table.rows]
    parts += [_ahead(tables), _targets(result)]
    for table in tables:
        parts.append(_section(table, pictures))
    path.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def _head(result: Result) -> str:
    short = (
        ""
        if result.size is Size.FULL
        else (
            f" This was a {result.size.value} run: each figure took some tenths of a second, and a JVM was still cold."
        )
    )
    return (
        "# Beside the peers\n\n"
        "Written by `make bench-peers` from `benchmarks/results/peers.json`, never by hand. Every peer has its own "
        "client and ran on this machine, over loopback or a UNIX socket, in turns with us. A cell is the median "
        f"of {_turns(result.turns)}; the lowest and the highest are in brackets. Ratios travel to other machines, "
        f"absolute figures do not.{short}\n\n"
        f"{result.machine}; commit {result.commit}, {result.date}; {result.took_s / 60:.0f} min. The load of the "
        f"minute before was {result.load_before:g} on {result.machine.cores} cores"
        f"{_quiet(result)}.{_wakes_late(result)}"
    )


def _turns(turns: int) -> str:
    return "one turn" if turns == 1 else f"{turns} turns"


def _quiet(result: Result) -> str:
    if result.load_before < result.machine.cores / 4:
        return ": nothing else ran"
    return ": **others used the machine**, so take the ratios, and those with care"


def _wakes_late(result: Result) -> str:
    if not result.wakes_late_ms:
        return ""
    late = ", ".join(f"{shown(late_ms, 'ms')} ({percent})" for percent, late_ms in result.wakes_late_ms.items())
    return (
        f" A process that only slept, before each turn, was woken too late by {late}: a tail of latencies that is no "
        "longer can be the machine's alone."
    )


def _promises_table(result: Result) -> str:
    lines = [
        [
            f"**{row.title}**" if row.ours else row.title,
            row.level,
            row.flush,
            row.ways,
            "; ".join(f"{name} {version}" for name, version in row.versions.items()),
        ]
        for row in result.rows
        if not row.not_measured
    ]
    header = ["", "an answered send survives", "flushed to the disk", "how it sends many, how it consumes", "versions"]
    return (
        "## What each promises\n\n"
        "`kill -9` of any process leaves what the kernel has been given; a power cut leaves what was flushed to the "
        "disk before. Tables and pictures are grouped by that. "
        "*ours to it* compares a peer with the best of our rows that promises at least as much.\n\n"
        + _left_table(header, lines)
    )


def _missing(result: Result) -> str:
    lines = [f"- {row.title}: not measured: {row.not_measured}" for row in result.rows if row.not_measured]
    lines += [f"- {row.title}, {work}: {why}" for row in result.rows for work, why in row.failures.items()]
    measured = {row.name for row in result.rows}
    if left_out := [each.title for each in EVERYBODY if each.name not in measured]:
        lines.append(f"- Not chosen for this run: {'; '.join(left_out)}")
    return "\n".join(["## Not measured, or failed", "", *map(_harmless, lines)]) if lines else ""


def _ahead(tables: Sequence[Table]) -> str:
    lines = [
        f"- {row.title}: {_named(table, column)}, {shown(1 / ratio, 'x')} ours"
        for table in tables
        for row in table.rows
        if not row.ours
        for column in table.columns
        if (len(table.group.drawn) < 2 or column in table.group.drawn)
        and (ratio := table.ratio(row, column)) is not None
        and ratio < 1 / _AHEAD
    ]
    return "\n".join(["## Where a peer is ahead of us", "", *(lines or ["Nowhere in this run, at the like promise."])])


def _named(table: Table, column: str) -> str:
    title = table.group.title[0].lower() + table.group.title[1:]
    return f"{title}, {column}" if column else title


def _targets(result: Result) -> str:
    figures = {(figure.name, figure.case): figure for figure in result.figures}
    found = [(wanted, line) for wanted in targets.WANTED if (line := _target(result, figures, wanted))]
    if not found:
        return ""
    table = markdown_table(["", "before", "target", "measured", ""], [line for _, line in found])
    limits = [f"- {line[0]}: {wanted.limit or 'not profiled.'}" for wanted, line in found if line[-1] == _MISSED]
    heading = ["", "What limits those that were missed, by [profiles](profiles.md) of our side:", ""] if limits else []
    return "\n".join(["## Targets", "", _BEFORE, "", table, *heading, *limits])


def _target(result: Result, figures: dict[tuple[str, str], Figure], wanted: targets.Wanted) -> list[str] | None:
    ours = figures.get((wanted.ours, wanted.case))
    title = {row.name: row.title for row in result.rows}
    rivals = [row.name for row in result.rows if not row.ours]
    names = rivals if wanted.peer == targets.BEST else [wanted.peer]
    theirs = [figure for name in names if (figure := figures.get((name, wanted.its_case)))]
    if ours is None or not theirs:
        return None
    best = max(theirs, key=lambda figure: figure.median)
    pairs = zip(ours.values, best.values, strict=False)
    ratio = statistics.median(its / our if wanted.is_latency else our / its for our, its in pairs)
    label = f"{wanted.case}, to {title[best.name]}" + ("" if wanted.its_case == wanted.case else f", {wanted.its_case}")
    verdict = "met" if ratio >= wanted.times else _MISSED
    return [label, shown(wanted.before, "x"), f"≥ {wanted.times:g} x", shown(ratio, "x"), verdict]


def _section(table: Table, pictures: Path) -> str:
    group = table.group
    parts = [f"## {group.title}", group.text]
    if group.picture and table.marks:
        (pictures / f"{group.picture}.svg").write_text(table.picture(), encoding="utf-8")
        parts.append(f"![{group.title}]({pictures.name}/{group.picture}.svg)")
    return "\n\n".join([*parts, table.markdown()])


def _promises(ours: Row, peer: Row) -> bool:
    return _RANK[ours.level] >= _RANK[peer.level]


def _times(ours: Figure, theirs: Figure, group: Group) -> float | None:
    """Return the median of the ratios within each turn; None if a value is not positive."""
    pairs = list(zip(ours.values, theirs.values, strict=False))
    if any(our <= 0 or its <= 0 for our, its in pairs):
        return None
    return statistics.median(our / its if group.more_is_better else its / our for our, its in pairs)


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if len(figure.values) == 1:
        return shown(figure.median, figure.unit)
    return (
        f"{shown(figure.median, figure.unit)} ({shown(figure.low, figure.unit)} to {shown(figure.high, figure.unit)})"
    )


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else shown(ratio, "x")


def _left_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _harmless(line: str) -> str:
    """Keep what a program printed from being read as Markdown."""
    return line.replace("<", "&lt;").replace("|", "/").replace("`", "'")
