"""Connections: what idle ones cost a server, in memory and processor time, plain and with TLS."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import process_fields
from benchmarks.measure import Benchmark, Samples, Size, scratch
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame, FrameReader, encode
from rmqclient.testing import Server, serve

_ASK = encode(Frame(RequestCode.GET_BROKER_CLUSTER_INFO))
_SPARE_FILES = 200
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of turns and connections, and the seconds that they are idle."""

    repetitions: int
    plain: int
    tls: int
    idle_s: float


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Open the connections, let each ask once, and look at the server."""
    samples.note(
        "Each connection has asked once. Memory is RssAnon of the server: what is its own. Buffers of the system for "
        "sockets are not in it."
    )
    most = _allowed_files() - _SPARE_FILES
    for _ in range(parameters.repetitions):
        for case, wanted, context in (("plain", parameters.plain, None), ("TLS", parameters.tls, _trusting())):
            count = min(wanted, most)
            with scratch(directory) as root, serve(root / "store") as server, ExitStack() as stack:
                _measure(server, stack, count, context, f"{count:,} {case}", parameters.idle_s, samples)


def _measure(
    server: Server,
    stack: ExitStack,
    count: int,
    context: ssl.SSLContext | None,
    case: str,
    idle_s: float,
    samples: Samples,
) -> None:
    _connect(server, stack, context)
    before = _own_bytes(server.pid)
    begun = time.perf_counter()
    sockets = [_connect(server, stack, context) for _ in range(count)]
    samples.add("connections made and asked", case, "/s", count / (time.perf_counter() - begun))
    samples.add("memory of a connection", case, "B", (_own_bytes(server.pid) - before) / count)
    used = _processor_s(server.pid)
    time.sleep(idle_s)
    samples.add("processor time of a second, idle", case, "ms", (_processor_s(server.pid) - used) / idle_s * 1000)
    begun = time.perf_counter()
    for sock in (sockets[0], sockets[-1]) * 100:
        _ask(sock)
    samples.add("answer beside them", case, "µs", (time.perf_counter() - begun) / 200 * 1e6)


def _connect(server: Server, stack: ExitStack, context: ssl.SSLContext | None) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    sock = socket.create_connection((host, int(port)), 30.0)
    if context is not None:
        sock = context.wrap_socket(sock)
    _ask(stack.enter_context(sock))
    return sock


def _ask(sock: socket.socket) -> None:
    sock.sendall(_ASK)
    reader = FrameReader()
    while not reader.feed(sock.recv(1 << 16)):
        pass


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _allowed_files() -> int:
    """Take as many file descriptors as this process may have, and return how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _own_bytes(pid: int) -> int:
    return int(process_fields(pid)["RssAnon"].split()[0]) * 1024


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


BENCHMARK = Benchmark(
    name="serve-connections",
    title="Idle connections of a server",
    parameters={
        Size.FULL: Parameters(repetitions=3, plain=10_000, tls=1_000, idle_s=10.0),
        Size.QUICK: Parameters(repetitions=1, plain=2_000, tls=200, idle_s=2.0),
        Size.SMALLEST: Parameters(repetitions=1, plain=20, tls=5, idle_s=0.1),
    },
    run=run,
)
