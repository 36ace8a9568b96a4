"""Kit: what a test of an application costs beside its own work."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Benchmark, Samples, Size, at_most
from rmqclient import App, RetryPolicy
from rmqclient.testing import Kit

_MS = 1_000
_TARGET_MS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """How often a test is run."""

    tests: int


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Make a kit, send, drain, look and close; then one with a retry after a minute by the moved clock."""
    del directory  # a kit lies where it chooses
    samples.note(
        "A test makes a kit, sends a message, drains, asserts that it was sent, and closes the kit. The second one "
        "also lets the handler fail once, which logs a traceback, moves the clock by a minute and drains again."
    )
    app = _app()
    _once(app, retried=False)  # imports
    for _ in range(parameters.tests):
        for case, retried in (("one message", False), ("a retry after a minute", True)):
            began, used = time.perf_counter(), time.process_time()
            _once(app, retried=retried)
            target = None if retried else at_most(_TARGET_MS)
            samples.add("processor time", case, "ms", (time.process_time() - used) * _MS, target)
            samples.add("time", case, "ms", (time.perf_counter() - began) * _MS)


def _once(app: App, *, retried: bool) -> None:
    with Kit(app) as kit:
        kit.send("orders", {"id": 1})
        if retried:
            kit.failing(app.handlers[0].function)
            kit.drain()
            kit.advance(minutes=1)
        kit.drain()
        kit.assert_sent("orders", {"id": 1})


def _app() -> App:
    app = App()

    @app.handler("orders", group="billing", retry=RetryPolicy(delays=(60.0,)))
    def bill(_: dict[str, int]) -> None:
        """Nothing to do."""

    return app


BENCHMARK = Benchmark(
    name="kit",
    title="Testing an application",
    parameters={
        Size.FULL: Parameters(tests=100),
        Size.QUICK: Parameters(tests=20),
        Size.SMALLEST: Parameters(tests=2),
    },
    run=run,
)
