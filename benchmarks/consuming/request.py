"""Request: the time from a request to its reply, between two processes, one request after the other.

Compared with the least that a round trip can cost here: a pair of FIFOs, written and read in turn without anything
around them. Both run at full speed, and at 500 a second, where both sides sleep in between.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import Begin, Child
from benchmarks.measure import Benchmark, Samples, Size, at_most, scratch
from benchmarks.traffic import TOPIC
from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store

REQUEST = "request to reply"
SIDE_BY_SIDE = "requests side by side"
FIFOS = "two FIFOs"
TARGETS = {(REQUEST, "p99"): at_most(1_000)}

_BODY = bytes(100)
_LONGEST_WAIT_S = 60.0
_PAUSE_S = 0.002
_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Number of turns, and of requests in each turn."""

    repetitions: int
    requests: int
    not_counted: int
    """The first requests of a turn: files are made and both sides warm up."""


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn."""
    counted = parameters.requests - parameters.not_counted
    samples.note(
        f"Bodies of {len(_BODY)} B, {counted:,} round trips in each turn, after {parameters.not_counted:,} that are "
        f"not counted; in between nothing, or {_PAUSE_S * 1000:g} ms of sleep. One requester, and one replier with one "
        f"thread. Side by side, up to {_AT_ONCE:,} requests are on their way."
    )
    for _ in range(parameters.repetitions):
        for case, pause_s in (("at once", 0.0), ("500 /s", _PAUSE_S)):
            with scratch(directory) as root:
                _add(samples, REQUEST, case, _through_the_store(parameters, root, pause_s))
            with scratch(directory) as path:
                _add(samples, FIFOS, case, _through_fifos(parameters, path, pause_s))
        with scratch(directory) as root:
            samples.add(SIDE_BY_SIDE, "1 process each", "/s", _side_by_side(parameters, root))
    for case in ("at once", "500 /s"):
        samples.add_ratio("median to that of two FIFOs", case, (f"{REQUEST}, median", case), (f"{FIFOS}, median", case))


def answer(begin: Begin, root: Path, requests: int) -> None:
    """Answer the requests with their own bodies."""
    finished, left = threading.Event(), requests
    app = App(root)

    @app.handler(TOPIC, group="repliers", replies=True)
    def echo(message: ReceivedMessage) -> bytes:
        nonlocal left
        left -= 1
        if not left:
            finished.set()
        return message.body

    with open_store(root) as store:
        Admin(store).create_topic(TOPIC, 4)
        consumer = PushConsumer(store, app.handlers)
        consumer.start()
        begin()
        if not finished.wait(_LONGEST_WAIT_S + requests / 100):
            raise TimeoutError(f"{left} of {requests} requests have not come")
        consumer.stop_taking()
        consumer.drain(_LONGEST_WAIT_S)
        consumer.close()


def ask(begin: Begin, root: Path, requests: int, pause_s: float) -> array[int]:
    """Make the requests one after the other; return the nanoseconds that each took."""
    with Producer(root) as producer:
        begin()
        return _timed(lambda: producer.request(Message(TOPIC, _BODY), _LONGEST_WAIT_S), requests, pause_s)


def ask_side_by_side(begin: Begin, root: Path, requests: int) -> float:
    """Make the requests, many at once; return the seconds that all took."""
    free = threading.Semaphore(_AT_ONCE)
    with Producer(root) as producer:
        begin()
        began = time.perf_counter()
        futures = []
        for _ in range(requests):
            free.acquire()
            future = producer.request_async(Message(TOPIC, _BODY), _LONGEST_WAIT_S)
            future.add_done_callback(lambda _: free.release())
            futures.append(future)
        for future in futures:
            future.result()
        return time.perf_counter() - began


def echo(begin: Begin, there: Path, back: Path, requests: int) -> None:
    """Write the bodies back."""
    begin()
    reading, writing = os.open(there, os.O_RDONLY), os.open(back, os.O_WRONLY)
    for _ in range(requests):
        os.write(writing, os.read(reading, len(_BODY)))
    os.close(reading)
    os.close(writing)


def call(begin: Begin, there: Path, back: Path, requests: int, pause_s: float) -> array[int]:
    """Write the bodies and read each back; return the nanoseconds that each took."""
    begin()
    writing, reading = os.open(there, os.O_WRONLY), os.open(back, os.O_RDONLY)

    def round_trip() -> None:
        os.write(writing, _BODY)
        os.read(reading, len(_BODY))

    taken = _timed(round_trip, requests, pause_s)
    os.close(writing)
    os.close(reading)
    return taken


def _timed(step: Callable[[], object], times: int, pause_s: float) -> array[int]:
    taken = array("q")
    for _ in range(times):
        began = time.perf_counter_ns()
        step()
        taken.append(time.perf_counter_ns() - began)
        if pause_s:
            time.sleep(pause_s)
    return taken


def _through_the_store(parameters: Parameters, root: Path, pause_s: float) -> array[int]:
    replier = Child(answer, root, parameters.requests)
    replier.wait_until_ready()
    return _taken(replier, Child(ask, root, parameters.requests, pause_s), parameters.not_counted)


def _through_fifos(parameters: Parameters, path: Path, pause_s: float) -> array[int]:
    path.mkdir(exist_ok=True)
    there, back = path / "there", path / "back"
    os.mkfifo(there)
    os.mkfifo(back)
    replier = Child(echo, there, back, parameters.requests)
    replier.wait_until_ready()
    return _taken(replier, Child(call, there, back, parameters.requests, pause_s), parameters.not_counted)


def _side_by_side(parameters: Parameters, root: Path) -> float:
    replier = Child(answer, root, parameters.requests)
    replier.wait_until_ready()
    requester = Child(ask_side_by_side, root, parameters.requests)
    requester.wait_until_ready()
    replier.begin()
    requester.begin()
    seconds = requester.result()
    replier.result()
    return parameters.requests / seconds


def _taken(replier: Child[None], requester: Child[array[int]], not_counted: int) -> array[int]:
    requester.wait_until_ready()
    replier.begin()
    requester.begin()
    taken = requester.result()
    replier.result()
    return taken[not_counted:]


def _add(samples: Samples, name: str, case: str, taken: array[int]) -> None:
    """Add median, 99th percentile and maximum of one turn."""
    ordered = sorted(taken)
    for part, nanoseconds in (
        ("median", statistics.median(ordered)),
        ("p99", ordered[len(ordered) * 99 // 100]),
        ("max", ordered[-1]),
    ):
        samples.add(f"{name}, {part}", case, "µs", nanoseconds / 1000, TARGETS.get((name, part)))


BENCHMARK = Benchmark(
    name="request",
    title="Requests",
    parameters={
        Size.FULL: Parameters(repetitions=5, requests=2_500, not_counted=500),
        Size.QUICK: Parameters(repetitions=1, requests=1_500, not_counted=500),
        Size.SMALLEST: Parameters(repetitions=1, requests=30, not_counted=10),
    },
    run=run,
)
