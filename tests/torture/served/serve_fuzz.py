"""Mutated requests against a server process: many to a write, by several clients.

Each client has one connection after the other, and asks something plain behind each batch. A server answers the
requests of a connection in their order, so this answer says that everything before it was read; a request is counted
when it has come. A connection goes on until it was sent bytes that are not a frame. What comes back meanwhile must be
frames whose codes RocketMQ knows. At the end the server must live, have written nothing outside of its directory,
logged no trace, and take no more memory than it took after the first tenth.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from rmqclient.testing import Server, serve
from tests.torture.result import Result, Rig
from tests.torture.served.mutating_client import Share, requests, send_share

CLAIM = (
    "Mutated requests get answers with known codes or a closed connection; the server lives and reads every one of "
    "them, its memory stays, and nothing is written outside of its directory."
)

_CLIENTS = 2
_PARTS = 20
_SMALLEST_PART = 5_000
_GROWTH = 1.25
_SLACK_KIB = 16 << 10
_MOST_PROBLEMS = 50
_TRACE = re.compile(r"^Traceback .*\n(?:\s.*\n)+\S.*", re.MULTILINE)


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Send so many mutated requests."""
    requests()  # before the clients are forked
    result, counts, place = Result(CLAIM), Counter[str](), scratch / "place"
    place.mkdir()
    with serve(place / "store") as server:
        started = time.monotonic()
        with ProcessPoolExecutor(_CLIENTS, get_context("fork")) as clients:
            rss = _send(clients, server, seed, rounds, counts, result)
        seconds = time.monotonic() - started
        _judge(server, place, rss, result)
        log = server.log
    traces = Counter(_TRACE.findall(log))
    result.problems += [
        f"a trace in the log, {count} times: ...{trace[-600:]}" for trace, count in traces.most_common(20)
    ]
    result.figures |= {
        "mutated requests that the server read": counts["read"],
        "connections": counts["connections"],
        "frames that came back": counts["frames"],
        "of these, answers that were read": counts["answers"],
        "of these, success": counts["success"],
        "connections that ended with bytes that are not a frame": counts["closed"],
        "requests a second": round(counts["read"] / seconds),
        "memory of the server after a tenth, MiB": round(_early(rss) / 1024, 1),
        "memory of the server at the end, MiB": round(rss[-1] / 1024, 1),
        "its log, KiB": round(len(log) / 1024),
    }
    return result


def _send(clients: Executor, server: Server, seed: int, rounds: int, counts: Counter[str], result: Result) -> list[int]:
    """Send everything, and add up what the clients saw; return the server's memory in KiB, measured at times."""
    rng, rss = random.Random(seed), []
    parts = max(1, min(_PARTS, rounds // _SMALLEST_PART))
    for part in range(parts):
        frames = rounds * (part + 1) // parts - rounds * part // parts
        shares = [
            Share(rng.getrandbits(32), frames * (number + 1) // _CLIENTS - frames * number // _CLIENTS)
            for number in range(_CLIENTS)
        ]
        for seen in clients.map(partial(send_share, server.address), shares):
            counts.update(seen.counts)
            result.problems += seen.problems
        rss.append(_anonymous_kib(server.pid) if server.is_running else 0)
        if not server.is_running or len(result.problems) > _MOST_PROBLEMS:
            break
    return rss


def _judge(server: Server, place: Path, rss: list[int], result: Result) -> None:
    if not server.is_running:
        result.problems.append(f"the server ended: {server.log[-2000:]}")
        return
    if rss[-1] > _early(rss) * _GROWTH + _SLACK_KIB:
        result.problems.append(f"memory grows, in KiB after each of {_PARTS} parts: {rss}")
    written = sorted(path.name for path in place.iterdir())
    outside = [
        str(path) for path in (place.parent / "outside", Path("/outside"), Path("/tmp/outside")) if path.exists()
    ]
    if written != ["store"] or outside:
        result.problems.append(f"written outside of the directory: {written} {outside}")
    server.stop()


def _early(rss: list[int]) -> int:
    """Return the memory after the second of twenty parts; of fewer parts, after the first."""
    return rss[1] if len(rss) == _PARTS else rss[0]


def _anonymous_kib(pid: int) -> int:
    """Return the memory of a process that is no mapped file."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])


RIG = Rig("serve-fuzz", 10_000_000, run)
