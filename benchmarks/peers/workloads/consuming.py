"""Consuming: what ``sending`` has left is handled by a function that does nothing, and acknowledged."""

from __future__ import annotations

import time
from collections.abc import Mapping

from benchmarks.child import Begin
from benchmarks.measure import in_bytes
from benchmarks.peers.peer import Peer
from benchmarks.peers.workloads.bench import Bench, together
from benchmarks.peers.workloads.sending import topic_of

CONSUMED = "consume and acknowledge"
_PATIENCE_S = 20.0


def measure(bench: Bench, stored: Mapping[int, int]) -> None:
    """Add the rate of each size."""
    for size, messages in stored.items():
        arguments = (bench.peer, bench.running.address, topic_of(size), messages, bench.scale.consume_s)
        (rate,) = together(bench.child(consume, *arguments))
        bench.add(f"{CONSUMED}, {in_bytes(size)}", "/s", rate)


def consume(begin: Begin, peer: Peer, address: str, topic: str, messages: int, seconds: float) -> float:
    """Handle all messages, or as many as can be in some seconds; return how many a second, from first to last.

    Raises TimeoutError if there is none.
    """
    seen = 0
    first_ns = last_ns = 0

    def handle(_body: bytes) -> None:
        nonlocal seen, first_ns, last_ns
        seen += 1
        if seen == 1:
            first_ns = time.monotonic_ns()
        if seen == messages:
            last_ns = time.monotonic_ns()

    with peer.session(address, topic) as session:
        begin()
        give_up_ns = time.monotonic_ns() + int(_PATIENCE_S * 1e9)
        counted = 0

        def enough() -> bool:
            nonlocal counted, last_ns
            if last_ns:
                counted = messages
            elif time.monotonic_ns() > (first_ns + int(seconds * 1e9) if first_ns else give_up_ns):
                counted, last_ns = seen, time.monotonic_ns()
            return bool(last_ns)

        session.consume(handle, enough)
    if counted < 2:
        raise TimeoutError(f"{counted} of {messages} messages came in {seconds} s")
    return (counted - 1) / (last_ns - first_ns) * 1e9
