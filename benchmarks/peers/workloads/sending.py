"""Sending: one by one, each answered before the next, and many at a time in the way of the peer.

What was sent stays in the topic of its size, for ``consuming``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.child import Begin
from benchmarks.measure import in_bytes
from benchmarks.peers.peer import Peer, Session
from benchmarks.peers.workloads.bench import Bench, together

SINGLE = "send, each answered"
MANY = "send, many at a time"
DISK = "disk for a message"
MANY_ARE = 100
_DISK_OF = 1024
_STEP_NS = 5_000_000
_WARM_UP = 0.2


class Sent(NamedTuple):
    """What a child has sent, and how fast."""

    messages: int
    """All of them, also those that were not timed."""
    single: float
    many: float


def measure(bench: Bench) -> dict[int, int]:
    """Add the rates of each size; return how many messages are in the topic of each."""
    stored: dict[int, int] = {}
    for size in bench.scale.sizes:
        before = bench.peer.stored_bytes(bench.running)
        topic = topic_of(size)
        (sent,) = together(bench.child(send, bench.peer, bench.running.address, topic, size, bench.scale.send_s))
        bench.add(f"{SINGLE}, {in_bytes(size)}", "/s", sent.single)
        bench.add(f"{MANY}, {in_bytes(size)}", "/s", sent.many)
        if size == _DISK_OF:
            grown = bench.peer.stored_bytes(bench.running) - before
            bench.add(f"{DISK} of {in_bytes(size)}", "B", grown / sent.messages)
        stored[size] = sent.messages
    return stored


def topic_of(size: int) -> str:
    """Return the topic of a size."""
    return f"of-{size}"


def send(begin: Begin, peer: Peer, address: str, topic: str, size: int, seconds: float) -> Sent:
    """Send for some seconds in each way, after a fifth of that which is not timed."""
    body = os.urandom(size)
    bodies = [body] * MANY_ARE
    with peer.session(address, topic) as session:

        def one() -> None:
            session.send(body)

        def many() -> None:
            session.send_many(bodies)

        begin()
        warm, _ = _repeat(one, session, seconds * _WARM_UP)
        single, single_rate = _repeat(one, session, seconds)
        warm_many, _ = _repeat(many, session, seconds * _WARM_UP)
        batches, batch_rate = _repeat(many, session, seconds)
    messages = warm + single + (warm_many + batches) * MANY_ARE
    return Sent(messages, single_rate, batch_rate * MANY_ARE)


def _repeat(step: Callable[[], None], session: Session, seconds: float) -> tuple[int, float]:
    """Repeat a step for some seconds; return how often, and how often a second until all is answered.

    The clock is looked at after so many steps as take some milliseconds.
    """
    done, together = 0, 1
    begun_ns = looked_ns = time.monotonic_ns()
    while looked_ns - begun_ns < seconds * 1e9:
        for _ in range(together):
            step()
        done += together
        now_ns = time.monotonic_ns()
        if now_ns - looked_ns < _STEP_NS:
            together *= 2
        looked_ns = now_ns
    session.settle()
    return done, done / (time.monotonic_ns() - begun_ns) * 1e9
