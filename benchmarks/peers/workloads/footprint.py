"""Footprint: the time from the start of everything to the first message, and the memory of a server at rest."""

from __future__ import annotations

import time

from benchmarks.child import Begin
from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import memory_mib
from benchmarks.peers.workloads.bench import Bench, together

FIRST = "start to first message"
AT_REST = "memory of the server at rest"
AFTER = "memory of the server after the work"
_TOPIC = "first"
_PATIENCE_S = 30.0


def measure_start(bench: Bench, begun_ns: int) -> None:
    """Add the time from when the server was started to the first message handled by a new client, and the memory then.

    ``begun_ns`` is of CLOCK_MONOTONIC.
    """
    (handled_ns,) = together(bench.child(first, bench.peer, bench.running.address))
    bench.add(FIRST, "s", (handled_ns - begun_ns) / 1e9)
    _add_memory(bench, AT_REST)


def measure_end(bench: Bench) -> None:
    """Add the memory after the work."""
    _add_memory(bench, AFTER)


def first(begin: Begin, peer: Peer, address: str) -> int:
    """Send one message and handle it; return when, of CLOCK_MONOTONIC. Raises TimeoutError if it does not come."""
    seen: list[int] = []
    begin()
    with peer.session(address, _TOPIC) as session:
        session.send(b"first")
        session.settle()
        end = time.monotonic() + _PATIENCE_S
        session.consume(lambda _body: seen.append(time.monotonic_ns()), lambda: bool(seen) or time.monotonic() > end)
    if not seen:
        raise TimeoutError("the first message did not come")
    return seen[0]


def _add_memory(bench: Bench, name: str) -> None:
    if bench.running.pids:
        bench.add(name, "MiB", memory_mib(bench.running.pids))
