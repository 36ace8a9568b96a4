"""Order: two consumers share the messages of 1,024 keys, and each key keeps its order; that is checked."""

from __future__ import annotations

import time
from typing import NamedTuple

from benchmarks.child import Begin
from benchmarks.peers.peer import Peer
from benchmarks.peers.workloads.bench import Bench, WorkFailed, together

ORDERED = "in order of each of 1,024 keys, two consumers"
KEYS = tuple(f"order-{number:04}" for number in range(1_024))
_TOPIC = "ordered"
_QUIET_S = 3.0
"""A consumer that has had nothing for so long has had its share."""
_SEND_S = 10.0
_STAMP_BYTES = 4


class Share(NamedTuple):
    """What one consumer has handled."""

    messages: int
    first_ns: int
    last_ns: int
    disordered: int
    """Messages that came after a later one of their key."""


def measure(bench: Bench) -> None:
    """Add how many messages a second both handled. Raises WorkFailed for a lost order, and for missing messages."""
    peer, address = bench.peer, bench.running.address
    (sent,) = together(bench.child(send, peer, address, bench.scale.keyed))
    shares = together(*(bench.child(consume, peer, address) for _ in range(2)))
    if disordered := sum(share.disordered for share in shares):
        raise WorkFailed(f"{disordered} messages came after a later one of their key")
    if (messages := sum(share.messages for share in shares)) < sent:
        raise WorkFailed(f"{messages} of {sent} messages came")
    worked = [share for share in shares if share.messages]
    took_ns = max(share.last_ns for share in worked) - min(share.first_ns for share in worked)
    bench.add(ORDERED, "/s", messages / took_ns * 1e9)


def send(begin: Begin, peer: Peer, address: str, messages: int) -> int:
    """Send messages with keys in turn, one by one, for ten seconds at most; return how many."""
    with peer.session(address, _TOPIC, ordered=True) as session:
        begin()
        end = time.monotonic() + _SEND_S
        sent = 0
        while sent < messages and time.monotonic() < end:
            for number, key in enumerate(KEYS):
                stamp = (sent // len(KEYS)).to_bytes(_STAMP_BYTES) + number.to_bytes(_STAMP_BYTES)
                session.send(stamp.ljust(100, b"."), key)
                sent += 1
        session.settle()
    return sent


def consume(begin: Begin, peer: Peer, address: str) -> Share:
    """Handle messages until none comes any more."""
    latest = [-1] * len(KEYS)
    messages = first_ns = last_ns = disordered = 0

    def handle(body: bytes) -> None:
        nonlocal messages, first_ns, last_ns, disordered
        turn, number = int.from_bytes(body[:_STAMP_BYTES]), int.from_bytes(body[_STAMP_BYTES : 2 * _STAMP_BYTES])
        disordered += turn <= latest[number]
        latest[number] = turn
        messages += 1
        last_ns = time.monotonic_ns()
        first_ns = first_ns or last_ns

    with peer.session(address, _TOPIC, ordered=True) as session:
        begin()
        begun_ns = time.monotonic_ns()

        def quiet() -> bool:
            patience_s = _QUIET_S if messages else 4 * _QUIET_S
            return time.monotonic_ns() - max(last_ns, begun_ns) > patience_s * 1e9

        session.consume(handle, quiet)
    return Share(messages, first_ns, last_ns, disordered)
