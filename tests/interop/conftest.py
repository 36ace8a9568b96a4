"""Prints what was counted, so that a run that compared nothing shows itself; one Spark session for all tests."""

from __future__ import annotations

import pytest

from tests.spark.conftest import spark

__all__ = ["spark"]  # one fixture: imported in each file it would be as many, and the first to end would end Java

_counts: list[str] = []


@pytest.fixture(scope="session")
def report() -> list[str]:
    """Lines for the end of the run."""
    return _counts


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which new fixtures are kept."""
    parser.addoption("--keep-stores", action="store_true", help="keep the broker's stores in tests/compat/golden")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts of all tests."""
    for line in _counts:
        terminalreporter.write_line(line)
