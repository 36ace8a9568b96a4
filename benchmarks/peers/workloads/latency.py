"""Latency: from when a message was due to be sent to the first line of the handler, in another process.

Messages are due at even intervals. A sender that comes late, because the send before took long, sends at once, and the
time counts from when the message was due: that corrects for coordinated omission. CLOCK_MONOTONIC is one clock for all
processes.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence

from benchmarks.child import Begin
from benchmarks.pace import pace
from benchmarks.peers.peer import Peer
from benchmarks.peers.workloads.bench import Bench, together

LATENCY = "latency"
PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99, 100.0)
"""Those of an HDR plot."""
_TOPIC = "latency"
_STAMP_BYTES = 8
_BODY_BYTES = 100
_PATIENCE_S = 15.0


def measure(bench: Bench) -> None:
    """Add the percentiles of one turn."""
    scale, address = bench.scale, bench.running.address
    messages = int(scale.rate * (scale.latency_s + scale.not_counted_s))
    receiver = bench.child(receive, bench.peer, address, messages, scale.latency_s + scale.not_counted_s)
    sender = bench.child(send, bench.peer, address, messages, scale.rate)
    latencies, _ = together(receiver, sender)
    counted = latencies[int(scale.rate * scale.not_counted_s) :]
    add_percentiles(bench, f"{LATENCY} at {scale.rate:,}/s", counted)


def add_percentiles(bench: Bench, name: str, latencies_ns: Sequence[int]) -> None:
    """Add what part of the messages was handled within which time."""
    ordered = sorted(latencies_ns)
    for percent in PERCENTILES:
        bench.add(f"{name}, {percent:g} %", "ms", at_percent(ordered, percent) / 1e6)


def at_percent(ordered: Sequence[int], percent: float) -> int:
    """Return the least of the ordered values that is above so many percent of them, or the largest."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def receive(begin: Begin, peer: Peer, address: str, messages: int, seconds: float) -> array[int]:
    """Handle the messages; return how many nanoseconds late each was, in the order of sending.

    Raises TimeoutError if some are missing long after the last was due.
    """
    late = array("q")

    def handle(body: bytes) -> None:
        now_ns = time.monotonic_ns()
        late.append(now_ns - int.from_bytes(body[:_STAMP_BYTES]))

    with peer.session(address, _TOPIC) as session:
        begin()
        end = time.monotonic() + seconds + _PATIENCE_S
        session.consume(handle, lambda: len(late) >= messages or time.monotonic() > end)
    if len(late) < messages:
        raise TimeoutError(f"{len(late)} of {messages} messages came")
    return late


def send(begin: Begin, peer: Peer, address: str, messages: int, rate: int) -> array[int]:
    """Send at an even pace, each message with the time at which it was due."""
    padding = bytes(_BODY_BYTES - _STAMP_BYTES)
    with peer.session(address, _TOPIC) as session:
        begin()
        pace(lambda due_ns: session.send(due_ns.to_bytes(_STAMP_BYTES) + padding), messages, rate)
    return array("q")
