"""Targets: how many times as much as a peer we want to do, in one run on one machine."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.peers.workloads.commits import COMMITTED
from benchmarks.peers.workloads.consuming import CONSUMED
from benchmarks.peers.workloads.latency import LATENCY
from benchmarks.peers.workloads.sending import MANY, SINGLE
from benchmarks.peers.workloads.tasks import NOOP


@dataclass(frozen=True, slots=True)
class Wanted:
    """A ratio of one of our rows to a row of a peer; both figures are of the cases named."""

    ours: str
    case: str
    peer: str
    its_case: str
    times: float
    """At least, of more a second; of a latency, that of the peer to ours."""
    before: float
    """The same ratio in the first run that had it."""
    is_latency: bool = False
    limit: str = ""
    """What a profile shows of the rest, as sentences."""


_ONE_CALL = (
    "a send is a call of Python for each message: of the samples of `perf record` 25 % are in the interpreter, 46 % in "
    "the kernel of Linux, which makes the pages of the log, and 23 % in ours. Kafka's client only puts a message into "
    "a buffer of the process in that call, where `kill -9` takes it."
)
_FRESH_PAGES = (
    "52 % of the samples of `perf record` are in the kernel of Linux, which makes the pages of the log, and 16 % of "
    "all in zeroing them; 28 % are in our kernel, of these 6 in the hashes of keys and 5 in CRC-32, and 13 % in the "
    "interpreter."
)
_WAKE_UPS = (
    "the sender sleeps until a message is due, and the handler until it comes, and both must be woken. The head of "
    "this page says how late a process was woken that did nothing else."
)
_HANDLER_CALLS = (
    "64 % of the samples of `perf record` in the worker are in the interpreter, which runs the loop over messages and "
    "the handler, a call for each; 19 % are in our kernel and 11 % in that of Linux. Kafka's client hands out lists."
)
_INTERPRETER = (
    "66 % of the samples of `perf record` in a worker are in the interpreter, which runs the loop over messages, the "
    "decoding of JSON and the task; 13 % are in our kernel and 11 % in that of Linux."
)

_SINGLE, _MANY, _CONSUMED = f"{SINGLE}, 100 B", f"{MANY}, 100 B", f"{CONSUMED}, 100 B"
_MEDIAN, _P99 = (f"{LATENCY} at 1,000/s, {percent} %" for percent in ("50", "99"))
BEST = "*"
"""The best of all that are not ours and have the figure."""

WANTED: tuple[Wanted, ...] = (
    Wanted("rmq", _SINGLE, "sqlite", _SINGLE, 15, 17.8),
    Wanted("rmq", _SINGLE, "redis", _SINGLE, 80, 206),
    Wanted("rmq", _SINGLE, "rocketmq-5.3.3", _SINGLE, 20, 1_600),
    Wanted("rmq", _SINGLE, "kafka", _MANY, 5, 3.16, limit=_ONE_CALL),
    Wanted("rmq", _MANY, "sqlite", _MANY, 6, 5.16, limit=_FRESH_PAGES),
    Wanted("rmq", _MANY, "redis", _MANY, 20, 20.9, limit=_FRESH_PAGES),
    Wanted("rmq", _CONSUMED, "redis", _CONSUMED, 6, 8.95, limit=_HANDLER_CALLS),
    Wanted("rmq", _CONSUMED, "kafka", _CONSUMED, 3, 1.68, limit=_HANDLER_CALLS),
    Wanted("rmq", _MEDIAN, "redis", _MEDIAN, 6, 6.35, is_latency=True, limit=_WAKE_UPS),
    Wanted("rmq", _P99, "redis", _P99, 4, 1.73, is_latency=True, limit=_WAKE_UPS),
    Wanted("tasks-rmq", NOOP, BEST, NOOP, 400, 270, limit=_INTERPRETER),
    Wanted("rmq-sync", COMMITTED, BEST, COMMITTED, 2, 2.44),
)
