"""The clock since the boot is the host's, also in a time namespace: in a container that was restored, for example."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient.store import boottime, open_store
from rmqclient.store.boot_clock import _namespace_ahead_ns
from rmqclient.store.boot_clock import boottime as as_onlookers_read_it
from tests.support.host.forking import ROOT

AHEAD_S = 1_000_000
SECOND = 1_000_000_000

IN_THE_NAMESPACE = """
import sys
import time
from rmqclient.store import boot_clock, boottime, clock, open_store
from rmqclient.store.observe.reading import Reading

print(boottime(), boot_clock.boottime(), clock.elapsed_ns())
with open_store(sys.argv[1]) as store:
    while not store.state.housekeeper_beat:
        time.sleep(0.005)
    print(store.state.awake.ran_since(store.state.housekeeper_beat))
with Reading(sys.argv[1]) as onlooker:
    print(round(onlooker.processes.housekeeper_silent_s * 1e9))
"""


@pytest.mark.guarantee("G86")
@pytest.mark.parametrize("ahead_s", [AHEAD_S, -20], ids=["ahead", "behind"])
def test_a_process_whose_namespace_has_another_time_judges_others_by_the_time_of_the_host(
    tmp_path: Path, ahead_s: int
) -> None:
    with open_store(tmp_path):
        began = boottime()
        assert began <= as_onlookers_read_it()
        *clocks, ran_since, silent = _numbers_of_a_process_in_a_namespace(ahead_s, tmp_path)
        took = boottime() - began

    assert clocks == sorted(clocks)
    assert began <= clocks[0]
    assert clocks[-1] <= began + took
    for heard in (ran_since, silent):  # as young as here
        assert -SECOND < heard < took + 10 * SECOND


@pytest.mark.parametrize(
    ("offsets", "ahead"),
    [
        ("", 0),
        ("monotonic           0         0\nboottime            0         0\n", 0),
        ("monotonic          -7         0\nboottime            3         5\n", 3 * SECOND + 5),
        ("monotonic           0         0\nboottime           -2 900000000\n", -1_100_000_000),
    ],
    ids=["no namespaces", "the host", "ahead", "behind"],
)
def test_what_a_namespace_is_ahead_is_read_as_the_kernel_writes_it(offsets: str, ahead: int) -> None:
    assert _namespace_ahead_ns(offsets) == ahead


def _numbers_of_a_process_in_a_namespace(ahead_s: int, root: Path) -> list[int]:
    command = ["unshare", "--time", f"--boottime={ahead_s}", sys.executable, "-c", IN_THE_NAMESPACE, str(root)]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    except FileNotFoundError:
        pytest.skip("this host has no unshare")
    if "unshare" in ran.stderr:
        pytest.skip(f"no time namespace can be made here: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr
    return [int(word) for word in ran.stdout.split()]
