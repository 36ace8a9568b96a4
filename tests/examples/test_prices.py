"""The prices example: workers, one of which is killed, value each order by the last price that was sent before it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.prices.market import SYMBOLS, Valuation, order, quote
from rmqclient import Producer, Table
from rmqclient.admin import Admin
from rmqclient.local.backend import store_of
from rmqclient.metrics import Sampler
from tests.client.conftest import wait_for

REPOSITORY = Path(__file__).parents[2]
ROUNDS = 6
LONG_S = 60.0


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start two workers."""
    command = [sys.executable, "-m", "rmqclient.workers", "run", "examples.prices.app:app", "--processes", "2"]
    environment = {**os.environ, "RMQ_STORE": str(tmp_path / "store"), "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.DEVNULL) as supervisor:
        yield supervisor
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(LONG_S) == 0


def lag(producer: Producer) -> int:
    return sum(queue.lag for queue in Admin(store_of(producer._backend, "a test")).lag("valuation"))


@pytest.mark.slow
@pytest.mark.guarantee("G42")
def test_each_order_is_valued_by_the_last_price_before_it(tmp_path: Path, workers: subprocess.Popen[bytes]) -> None:
    assert workers.poll() is None
    expected: dict[str, Valuation] = {}
    with (
        Producer(tmp_path / "store") as producer,
        Table(tmp_path / "store", "valuations", value_type=Valuation) as valuations,
    ):
        for round_number in range(ROUNDS):
            # Given new prices
            for place, symbol in enumerate(SYMBOLS):
                quote(producer, symbol, 100 * round_number + place)
            # When orders follow at once, and a worker is killed in the middle of it
            for place, symbol in enumerate(SYMBOLS):
                number = round_number * len(SYMBOLS) + place
                order(producer, number, symbol, 3)
                expected[f"{number}"] = Valuation(symbol, 3 * (100 * round_number + place))
            if round_number == ROUNDS // 2:
                with Sampler(tmp_path / "store") as sampler:
                    os.kill(sampler.sample().workers[0].pid, signal.SIGKILL)
            # Then the workers know these prices, whichever of them takes an order, also for the second time
            wait_for(lambda: len(valuations) == len(expected), "every order is valued", timeout_s=LONG_S)
            wait_for(lambda: lag(producer) == 0, "every order is acknowledged", timeout_s=LONG_S)
        valuations.wait_until_caught_up(LONG_S)
        assert dict(valuations) == expected
