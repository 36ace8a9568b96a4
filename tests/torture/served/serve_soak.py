"""A server for an hour under clients that send, consume, join, leave, connect and go: does anything grow?

Its memory that no file backs, its descriptors and its threads are looked at every few seconds. Each is compared between
the second and the last quarter of the time: the first quarter fills caches.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqclient.testing import Server, serve
from tests.interop.rocketmq import TOP
from tests.torture.result import Result, Rig

CLAIM = (
    "A server that sends, consumption, members that come and go, and short connections keep busy for an hour has no "
    "more memory, descriptors and threads in the last quarter than in the second one."
)

_SAMPLE_S = 5.0
_GROWTH = 1.05
_SLACK = {"memory, KiB": 4 << 10, "descriptors": 8, "threads": 2}
"""What a quarter may have more than another one: connections that are open at the moment."""

_ANSWER_S = 30
"""A busy machine is no fault of the server."""
_END_S = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What a server has at a moment."""

    memory_kib: int
    descriptors: int
    threads: int


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Run for so many minutes; there is nothing random, so ``seed`` is not used."""
    del seed
    result = Result(CLAIM)
    with serve(scratch / "store") as server:
        command = [sys.executable, "-m", "tests.torture.served.child_soak", f"{server.url}?timeout={_ANSWER_S}"]
        with subprocess.Popen(command, cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as clients:
            try:
                samples = _watch(server, clients, rounds * 60.0)
                output, _ = clients.communicate(timeout=_END_S)
            finally:
                clients.kill()
        if clients.returncode:
            result.problems.append(f"the clients ended with {clients.returncode}")
        else:
            result.figures |= json.loads(output)
        if not server.is_running:
            result.problems.append(f"the server ended by itself:\n{server.log[-3000:]}")
        if traces := server.log.count("Traceback"):
            result.problems.append(f"{traces} traces in the log: {server.log[-3000:]}")
    judge(samples, result)
    return result


def judge(samples: Sequence[Sample], result: Result) -> None:
    """Add the figures of the second and the last quarter, and what has grown between them."""
    quarter = len(samples) // 4
    if not quarter:
        result.problems.append(f"{len(samples)} samples are too few to compare quarters")
        return
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    for name, of in _KINDS.items():
        before, after = (statistics.median(getattr(sample, of) for sample in part) for part in (early, late))
        result.figures |= {f"{name}: second quarter": int(before), f"{name}: last quarter": int(after)}
        if after > before * _GROWTH + _SLACK[name]:
            every = samples[:: max(1, len(samples) // 20)]
            result.problems.append(f"{name}: grew from {before} to {after}: {[getattr(each, of) for each in every]}")


_KINDS = {"memory, KiB": "memory_kib", "descriptors": "descriptors", "threads": "threads"}


def _watch(server: Server, clients: subprocess.Popen[bytes], for_s: float) -> list[Sample]:
    samples, end = [], time.monotonic() + for_s
    while time.monotonic() < end and server.is_running and clients.poll() is None:
        samples.append(sample(server.pid))
        time.sleep(min(_SAMPLE_S, for_s / 40))
    return samples


def sample(pid: int) -> Sample:
    """Look at a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    found = [re.search(rf"^{field}:\s+(\d+)", status, re.MULTILINE) for field in ("RssAnon", "Threads")]
    memory, threads = (int(each[1]) if each else 0 for each in found)
    return Sample(memory, len(list(Path(f"/proc/{pid}/fd").iterdir())), threads)


RIG = Rig("serve-soak", 60, run)
"""``--rounds`` are minutes."""
