"""Delayed: how late messages are that were to come one second after they were sent."""

from __future__ import annotations

import time
from array import array
from typing import cast

from benchmarks.child import Begin
from benchmarks.pace import pace
from benchmarks.peers.peer import Peer, SendsLater
from benchmarks.peers.workloads.bench import Bench, together

DELAYED = "lateness of messages delayed by 1 s"
_TOPIC = "delayed"
_DELAY_S = 1.0
_RATE = 200
_PATIENCE_S = 20.0
_STAMP_BYTES = 8


def measure(bench: Bench) -> None:
    """Add median and 99th percentile."""
    peer, address, messages = bench.peer, bench.running.address, bench.scale.delayed
    receiver = bench.child(receive, peer, address, messages)
    sender = bench.child(send, peer, address, messages)
    late, _ = together(receiver, sender)
    ordered = sorted(late)
    bench.add(f"{DELAYED}, median", "ms", ordered[len(ordered) // 2] / 1e6)
    bench.add(f"{DELAYED}, 99 %", "ms", ordered[len(ordered) * 99 // 100] / 1e6)


def receive(begin: Begin, peer: Peer, address: str, messages: int) -> array[int]:
    """Handle the messages; return how many nanoseconds late each was. Raises TimeoutError if some do not come."""
    late = array("q")

    def handle(body: bytes) -> None:
        late.append(time.monotonic_ns() - int.from_bytes(body[:_STAMP_BYTES]))

    with peer.session(address, _TOPIC) as session:
        begin()
        end = time.monotonic() + messages / _RATE + _DELAY_S + _PATIENCE_S
        session.consume(handle, lambda: len(late) >= messages or time.monotonic() > end)
    if len(late) < messages:
        raise TimeoutError(f"{len(late)} of {messages} delayed messages came")
    return late


def send(begin: Begin, peer: Peer, address: str, messages: int) -> array[int]:
    """Send at an even pace, each message with the time at which it is to be handed out."""
    with peer.session(address, _TOPIC) as opened:
        session = cast("SendsLater", opened)
        begin()

        def one(_due_ns: int) -> None:
            wanted_ns = time.monotonic_ns() + int(_DELAY_S * 1e9)
            session.send_later(wanted_ns.to_bytes(_STAMP_BYTES), _DELAY_S)

        pace(one, messages, _RATE)
        session.settle()
    return array("q")
