"""RocketMQ's own integration tests against ``rmq serve``, class by class: every test passes.

``RMQ_TEST_SERVER=127.0.0.1:9876`` names another server to try them on, a broker of RocketMQ for instance; its SQL92
filters have to be on.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from rmqclient.testing import serve
from tests.interop.rocketmq import SUITE_4_9_7, Java, why_not
from tests.interop.suite.classes import IGNORED, PACKAGE, TESTS
from tests.support.lines import Line

pytestmark = pytest.mark.skipif(bool(reason := why_not(SUITE_4_9_7)), reason=reason)

CLASS_S = 600.0
"""Many times what the longest class takes; a test that waits for a message in vain gives up after two minutes."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Return the address of the server under test."""
    if given := os.environ.get("RMQ_TEST_SERVER"):
        yield given
        return
    with serve(None, *OPTIONS) as server:
        yield server.address
        print(server.log[-3000:])


OPTIONS: tuple[str, ...] = ()


@pytest.mark.parametrize("name", TESTS)
def test_a_class_of_rocketmqs_tests_passes(name: str, address: str, tmp_path: Path, report: list[str]) -> None:
    lines = results_of(name, address, tmp_path)
    counts = Counter(line["kind"] for line in lines)
    failed = [f"{line['test']}: {line['trace'][:3000]}" for line in lines if line["kind"] == "failed"]
    report.append(f"{name}: {dict(counts)} in {sum(line['ms'] for line in lines) / 1000:.0f} s")
    assert not failed, "\n".join(failed)
    assert counts == ({"ignored": 1} if name in IGNORED else {"passed": TESTS[name]})


def results_of(name: str, address: str, home: Path) -> list[Line]:
    """Run a class in a Java of its own, and return a line for each of its tests. Fails when it does not end."""
    java = Java(SUITE_4_9_7, home, ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", f"-Dserver.under.test={address}"))
    done = subprocess.run(
        java.command("interop.Suite", f"{PACKAGE}.{name}"), capture_output=True, text=True, timeout=CLASS_S, check=False
    )
    lines: list[Line] = [orjson.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, f"{name} did not run:\n{done.stderr[-6000:]}"
    assert lines[-1]["kind"] == "done", f"{name} ended with {done.returncode}:\n{done.stderr[-6000:]}"
    return lines[:-1]


def test_the_published_tests_are_all_here() -> None:
    assert len(TESTS) == 48
    assert sum(TESTS.values()) == 108
