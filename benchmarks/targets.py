"""Targets: what was slow once, how fast it is to be, how fast it is, and what limits the rest.

The page is written from the results of the last full runs; a thing without a result is shown as not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.measure import Figure, Target, at_least, at_most
from benchmarks.report import Report, markdown_table, shown, shown_target

PAGE = "targets.md"
"""Stands beside the page of the benchmarks."""

_HEAD = """\
# Targets

Written by `python -m benchmarks render` from the results of the [benchmarks](benchmarks.md). *Before* is what two cores
did before the work that the target asked for began; *now* is the median of the last full run, on the machine that
its section names. The targets beside other queues stand with [them](peers.md#targets).
"""

_PROFILES = "The [profiles](profiles.md) show the functions behind sends, handlers, tasks and requests."


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """One figure of a benchmark, what it was before, and what it should be."""

    shown: str
    benchmark: str
    name: str
    case: str
    before: str
    target: Target
    limit: str = ""
    """What a profile shows of the rest, as sentences; empty without a profile."""


_PAGES = (
    "The kernel of Linux makes each new page of the log and the index: 52 % of all samples of `perf record` are in "
    "it, 16 % in zeroing them. The hashes of keys take 6 %, CRC-32 takes 5 %, the index 4 %, and no other function of "
    "ours more than 3 %. Recycled files would need no zeroes, but a log that grows has none."
)
_ONE_LOG = (
    "All senders append to one log, one after the other, and each process puts all pages of the log into a page "
    "table of its own: for the same 800,000 messages that took the threads which prepare pages 0.11, 0.17 and 0.30 s "
    "of processor time in 1, 4 and 8 senders, on a busy machine."
)
_UNEVEN = (
    "The keys of the benchmark do not spread evenly: by RocketMQ's hash 54 of the 64 queues get 1 to 39 of 1,024 keys. "
    "Those with the most messages lag, and the log is read in several places at once. With the numbers to 996 as keys "
    "there were 39,000 page faults for a million messages instead of 8,500; with messages to 64 queues in turns the "
    "ratio of processor time was 1.10 x. Both on a busy machine."
)
_ROUND_TRIP = (
    "Both sides work one after the other. Of the samples of `perf record` on both cores, which count no time asleep, "
    "58 % are in the interpreter, 17 % where one side looks for the other's ring before it sleeps, and 18 % in the "
    "kernel of Linux."
)
_SPARK_WRITE = (
    "43 % of the samples of `perf record` of all processes are in Python, 26 of these in the kernel of Linux, which "
    "makes the pages of the log, and 9 in ours; 24 % are in the threads of Spark's tasks, which read Parquet and send "
    "Arrow, and 8 % in the compilers of Java. For 21 % the cores are idle."
)
_SPARK_BODILESS = (
    "32 % of the samples of `perf record` of all processes are in the threads of Spark's tasks, which read Arrow from "
    "a socket, and 18 % in the compilers of Java: the query takes 0.6 s. 26 % are in Python, 10 of these in our kernel "
    "and 6 in that of Linux; the cores are idle for 14 %."
)
_SPARK_SCAN = (
    "41 % of the samples of `perf record` of all processes are in the threads of Spark's tasks, which read Arrow from "
    "a socket and copy each body, and 9 % in the compilers of Java. 34 % are in Python: 14 in the kernel of Linux, "
    "which copies the log into the process and the columns into the socket, and 8 in ours."
)

AIMS = (
    Aim(
        shown="`send_batch` of 100, 100 B",
        benchmark="append",
        name="send_batch of 100, messages made before",
        case="100 B",
        before="2.2 to 2.8 M/s",
        target=at_least(5e6),
        limit=_PAGES,
    ),
    Aim(
        shown="`send_batch` to memcpy into fresh pages, 1 KiB",
        benchmark="append",
        name="send_batch to memcpy into fresh pages",
        case="1 KiB",
        before="0.49 x",
        target=at_least(0.6),
        limit=_PAGES,
    ),
    Aim(
        shown="two sending processes to one, 100 B",
        benchmark="append",
        name="two processes to one",
        case="100 B",
        before="1.0 x",
        target=at_least(1.5),
        limit=_ONE_LOG,
    ),
    Aim(
        shown="send to handler, median",
        benchmark="latency",
        name="send to handler, median",
        case="100 B",
        before="30 to 50 µs",
        target=at_most(20),
    ),
    Aim(
        shown="send to handler, p99",
        benchmark="latency",
        name="send to handler, p99",
        case="100 B",
        before="100 to 200 µs",
        target=at_most(100),
    ),
    Aim(
        shown="consumption from 64 queues to 1",
        benchmark="scale",
        name="consume, to 1 queue",
        case="64 queues",
        before="1.42 x",
        target=at_most(1.25),
        limit=_UNEVEN,
    ),
    Aim(
        shown="sends in turns to 10,000 queues, to 8",
        benchmark="scale",
        name="append in turns, to 8 queues",
        case="10,000 queues",
        before="0.64 x",
        target=at_least(0.7),
    ),
    Aim(
        shown="disk space of 10,000 consume queues",
        benchmark="scale",
        name="disk space of the consume queues",
        case="10,000 queues",
        before="5,742 MiB",
        target=at_most(500),
    ),
    Aim(
        shown="request to reply, back to back",
        benchmark="request",
        name="request to reply, median",
        case="at once",
        before="69 µs",
        target=at_most(40),
        limit=_ROUND_TRIP,
    ),
    Aim(
        shown="resident memory of a worker behind what it has read",
        benchmark="consume",
        name="one worker, 1 thread: resident memory behind them",
        case="100 B",
        before="3,300 MiB after 12 million messages",
        target=at_most(256),
    ),
    Aim(
        shown="Spark, write, 100 B",
        benchmark="spark",
        name="write: the store",
        case="100 B",
        before="0.90 M/s",
        target=at_least(1e6),
        limit=_SPARK_WRITE,
    ),
    Aim(
        shown="Spark, aggregate without the body, store to Parquet, 100 B",
        benchmark="spark",
        name="aggregate without the body, its columns asked for, store to Parquet",
        case="100 B",
        before="0.33 x",
        target=at_least(0.5),
        limit=_SPARK_BODILESS,
    ),
    Aim(
        shown="Spark, scan, store to Kafka tuned for long reads, 1 KiB",
        benchmark="spark",
        name="scan, store to kafka, tuned for long reads",
        case="1 KiB",
        before="0.96 x",
        target=at_least(1.2),
        limit=_SPARK_SCAN,
    ),
)


def page(reports: Mapping[str, Report]) -> str:
    """Return the Markdown page; ``reports`` are those that exist, by the names of their benchmarks."""
    found = [(aim, _now(aim, reports.get(aim.benchmark))) for aim in AIMS]
    table = markdown_table(["", "before", "target", "now", ""], [_row(*each) for each in found])
    return "\n".join([_HEAD, table, "", "## What limits the rest", "", _PROFILES, "", *_limits(found), ""])


def _now(aim: Aim, measured: Report | None) -> Figure | None:
    figures = measured.figures if measured is not None else []
    return next((each for each in figures if (each.name, each.case) == (aim.name, aim.case)), None)


def _row(aim: Aim, now: Figure | None) -> list[str]:
    if now is None:
        return [aim.shown, aim.before, "", "not measured", ""]
    met = aim.target.is_met_by(now.median)
    limit = shown_target(aim.target, now.unit)
    return [aim.shown, aim.before, limit, shown(now.median, now.unit), "met" if met else "missed"]


def _limits(found: Iterable[tuple[Aim, Figure | None]]) -> list[str]:
    """Return a line for each limit of the aims that were measured and missed."""
    missed: dict[str, list[str]] = {}
    for aim, now in found:
        if now is not None and not aim.target.is_met_by(now.median):
            missed.setdefault(aim.limit or "Not profiled.", []).append(aim.shown)
    return [f"- {'; '.join(names)}: {limit[0].lower()}{limit[1:]}" for limit, names in missed.items()]
