"""Backlog: a consumer works off what has piled up while a sender goes on as fast as it can."""

from __future__ import annotations

import os
import time

from benchmarks.child import Begin
from benchmarks.peers.peer import Peer
from benchmarks.peers.workloads.bench import Bench, together

DRAINED = "drain of a backlog while it grows: consumed"
GROWN = "drain of a backlog while it grows: sent"
_TOPIC = "backlog"
_BODY_BYTES = 100
_MANY = 100
_FILL_S = 20.0


def measure(bench: Bench) -> None:
    """Add both rates."""
    peer, address, scale = bench.peer, bench.running.address, bench.scale
    together(bench.child(fill, peer, address, scale.backlog))
    consumer = bench.child(drain, peer, address, scale.drain_s)
    sender = bench.child(grow, peer, address, scale.drain_s)
    consumed, sent = together(consumer, sender)
    bench.add(DRAINED, "/s", consumed)
    bench.add(GROWN, "/s", sent)


def fill(begin: Begin, peer: Peer, address: str, messages: int) -> float:
    """Send the backlog, or what can be sent in some seconds; return the seconds that took."""
    bodies = [os.urandom(_BODY_BYTES)] * _MANY
    with peer.session(address, _TOPIC) as session:
        begin()
        begun = time.monotonic()
        for _ in range(messages // _MANY):
            session.send_many(bodies)
            if time.monotonic() - begun > _FILL_S:
                break
        session.settle()
        return time.monotonic() - begun


def drain(begin: Begin, peer: Peer, address: str, seconds: float) -> float:
    """Handle messages for some seconds; return how many a second."""
    seen = 0

    def handle(_body: bytes) -> None:
        nonlocal seen
        seen += 1

    with peer.session(address, _TOPIC) as session:
        begin()
        begun = time.monotonic()
        ended = 0.0
        counted = 0

        def enough() -> bool:
            nonlocal ended, counted
            if not ended and time.monotonic() - begun > seconds:
                ended, counted = time.monotonic(), seen
            return bool(ended)

        session.consume(handle, enough)
    return counted / (ended - begun)


def grow(begin: Begin, peer: Peer, address: str, seconds: float) -> float:
    """Send one by one for some seconds; return how many a second."""
    body = os.urandom(_BODY_BYTES)
    sent = 0
    with peer.session(address, _TOPIC) as session:
        begin()
        begun = time.monotonic()
        while (now := time.monotonic()) - begun < seconds:
            session.send(body)
            sent += 1
        session.settle()
    return sent / (now - begun)
