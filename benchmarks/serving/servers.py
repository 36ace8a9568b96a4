"""Servers: ``rmq serve`` and RocketMQ's brokers as processes, and what each of them has used so far."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rmqclient.testing import serve
from tests.interop.cluster.clusters import started_cluster
from tests.interop.rocketmq import FAST_JVM

SERVE = "rmq serve"

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs: a broker with its name server, or one process that is both."""

    address: str
    """What its clients are given, ``host:port``."""

    pids: tuple[int, ...]
    started_s: float
    """How long it took from its start until its clients could come."""

    @property
    def processor_s(self) -> float:
        """Processor time that it has used so far, in seconds. [/proc/PID/stat: utime, stime]"""
        return sum(_processor_ticks(pid) for pid in self.pids) / _TICKS_PER_S

    @property
    def memory_mib(self) -> float:
        """Memory that is its own: no page of a file, whose pages the kernel may take back. [smaps_rollup: Anonymous]"""
        return sum(_anonymous_bytes(pid) for pid in self.pids) / _MIB


@contextmanager
def running(name: str, directory: Path) -> Iterator[Running]:
    """Start :data:`SERVE`, or the release of RocketMQ that ``name`` is, over an empty store in ``directory``."""
    begun = time.monotonic()
    if name == SERVE:
        with serve(directory / "store") as server:
            yield Running(server.address, (server.pid,), time.monotonic() - begun)
        return
    with started_cluster(name, directory, masters=1, jvm=FAST_JVM) as cluster:
        servers = [*cluster.name_servers, *(node.server for node in cluster.brokers)]
        pids = tuple(server.process.pid for server in servers if server.process is not None)
        yield Running(cluster.addresses[0], pids, time.monotonic() - begun)


def processor_name(case: str) -> str:
    """Return the name of the figure that says what a case costs a server."""
    return f"{case}: processor time of the server, each"


def _processor_ticks(pid: int) -> int:
    behind_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    return int(behind_name[11]) + int(behind_name[12])


def _anonymous_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"process {pid} does not tell its anonymous memory")
