"""Mutated requests against a server process: many to a write, on one connection after the other.

After each batch the rig asks something plain and waits for its answer, unless the batch ends within a frame. What comes
back meanwhile must be frames whose codes RocketMQ knows. At the end the server must live, have written nothing outside
of its directory, logged no trace, and take no more memory than it took after the first tenth.
"""

from __future__ import annotations

import random
import re
import socket
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import RemotingError
from rmqclient.remoting.frame import RESPONSE, Frame, FrameReader, encode
from rmqclient.testing import Server, serve
from tests.torture.damage.frames import Requests
from tests.torture.result import Result, Rig

CLAIM = (
    "Mutated requests get answers with known codes or a closed connection; the server lives, its memory stays, and "
    "nothing is written outside of its directory."
)

_BATCH = 200
_PATIENCE_S = 60.0
_ASKED = 0x7E57
_MADE_SHARE = 0.002
_GROWTH = 1.25
_SLACK_KIB = 16 << 10
_CODES = frozenset(int(code) for code in ResponseCode)
_TRACE = re.compile(r"^\w*(?:Error|Exception|Warning)\b.*|^[\w.]+(?:Error|Exception)\b.*", re.MULTILINE)


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Send so many mutated requests."""
    rng, requests, result = random.Random(seed), Requests(_MADE_SHARE), Result(CLAIM)
    counts: Counter[str] = Counter()
    rss: list[int] = []
    place = scratch / "place"
    place.mkdir()
    started = time.monotonic()
    with serve(place / "store") as server:
        while counts["frames"] < rounds and server.is_running:
            _connection(server, requests, rng, min(_BATCH, rounds - counts["frames"]), counts, result)
            if counts["frames"] * 20 // rounds > len(rss):
                rss.append(_anonymous_kib(server.pid))
        rss.append(_anonymous_kib(server.pid) if server.is_running else 0)
        seconds = time.monotonic() - started
        _judge(server, place, rss, result)
        log = server.log
    traces = Counter(_TRACE.findall(log)) if "Traceback" in log else Counter()
    result.problems += [f"a trace in the log, {count} times: {line:.300}" for line, count in traces.most_common(20)]
    result.figures |= {
        "mutated requests": counts["frames"],
        "connections": counts["connections"],
        "answers": counts["answers"],
        "of these, success": counts["success"],
        "connections that the server closed": counts["closed"],
        "requests a second": round(counts["frames"] / seconds),
        "memory of the server after a tenth, MiB": round(rss[min(1, len(rss) - 1)] / 1024, 1),
        "memory of the server at the end, MiB": round(rss[-1] / 1024, 1),
    }
    return result


def _connection(
    server: Server, requests: Requests, rng: random.Random, most: int, counts: Counter[str], result: Result
) -> None:
    """Send one batch, to its end or to the first frame that is none, and read what comes back."""
    batch: list[bytes] = []
    is_whole = True
    while len(batch) < most and is_whole:
        mutated = requests.one(rng)
        batch.append(mutated.raw)
        is_whole = mutated.is_whole
    counts["frames"] += len(batch)
    counts["connections"] += 1
    if is_whole:
        batch.append(encode(Frame(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=_ASKED)))
    host, _, port = server.address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _PATIENCE_S) as sock, suppress(ConnectionError):
            sock.sendall(b"".join(batch))
            if not is_whole:
                sock.shutdown(socket.SHUT_WR)
            _read(sock, counts, result)
    except TimeoutError:
        result.problems.append(f"no answer within {_PATIENCE_S:g} s after {counts['frames']:,} requests")
    except ConnectionRefusedError:
        result.problems.append(f"nobody listens after {counts['frames']:,} requests")


def _read(sock: socket.socket, counts: Counter[str], result: Result) -> None:
    """Read until the answer to the plain request, or the end of the connection."""
    reader = FrameReader()
    while data := sock.recv(1 << 18):
        try:
            frames = reader.feed(data)
        except RemotingError as error:
            result.problems.append(f"bytes that are no frame: {error}")
            return
        for frame in frames:
            if frame.flag & RESPONSE:
                counts["answers"] += 1
                counts["success"] += frame.code == 0
                if frame.code not in _CODES:
                    result.problems.append(f"an answer with the code {frame.code}: {frame.remark}")
                if frame.opaque == _ASKED and frame.code == 0:
                    return
    counts["closed"] += 1


def _judge(server: Server, place: Path, rss: list[int], result: Result) -> None:
    if not server.is_running:
        result.problems.append(f"the server ended: {server.log[-2000:]}")
        return
    early = rss[min(1, len(rss) - 1)]
    if rss[-1] > early * _GROWTH + _SLACK_KIB:
        result.problems.append(f"memory grows, in KiB after each twentieth: {rss}")
    written = sorted(path.name for path in place.iterdir())
    outside = [
        str(path) for path in (place.parent / "outside", Path("/outside"), Path("/tmp/outside")) if path.exists()
    ]
    if written != ["store"] or outside:
        result.problems.append(f"written outside of the directory: {written} {outside}")
    server.stop()


def _anonymous_kib(pid: int) -> int:
    """Return the memory of a process that is no mapped file."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])


RIG = Rig("serve-fuzz", 10_000_000, run)
