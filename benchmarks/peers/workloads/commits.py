"""Commits: sixteen senders send one by one to a peer that flushes before it answers.

A peer that lets those which wait at the same moment share a flush commits more than one sender could.
"""

from __future__ import annotations

import os
import time

from benchmarks.child import Begin
from benchmarks.measure import Span, rate
from benchmarks.peers.peer import Level, Peer
from benchmarks.peers.workloads.bench import Bench, together

COMMITTED = "commits of sixteen senders"
SENDERS = 16
_TOPIC = "committed"
BODY_BYTES = 100


def measure(bench: Bench) -> None:
    """Add how many messages a second sixteen processes sent. Does nothing for a peer that answers before it flushes."""
    if bench.peer.promise.level is not Level.DISK:
        return
    address, seconds = bench.running.address, bench.scale.commit_s
    spans = together(*(bench.child(send, bench.peer, address, seconds) for _ in range(SENDERS)))
    bench.add(COMMITTED, "/s", rate(*spans))


def send(begin: Begin, peer: Peer, address: str, seconds: float) -> Span:
    """Send one by one for some seconds, and one message before that."""
    body = os.urandom(BODY_BYTES)
    sent = 0
    with peer.session(address, _TOPIC) as session:
        session.send(body)
        begin()
        begun_ns = time.monotonic_ns()
        end_ns = begun_ns + int(seconds * 1e9)
        while (ended_ns := time.monotonic_ns()) < end_ns:
            session.send(body)
            sent += 1
        session.settle()
    return Span(messages=sent, record_bytes=0, begun_ns=begun_ns, ended_ns=ended_ns)
