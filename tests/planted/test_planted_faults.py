"""The tests can fail: plant a fault into a copy of the packages, and the tests that belong to it notice the fault.

A suite that has never failed proves nothing. The faults are mistakes that a careless change would make.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.planted.fault import Fault
from tests.planted.faults import FAULTS

ROOT = Path(__file__).parents[2]
COPIED = (
    "store",
    "rmqclient",
    "workers",
    "tests",
    "pyproject.toml",
    "setup.py",
    "README.md",
)
SOME_TEST_FAILED = 1
"""Exit status of pytest when it ran tests; it has others for a collection error and for an empty selection."""

ONE_FILE = "tests/unit/kernel/test_acknowledgement.py"
"""Tests that show that a copy works. Every other file fails with its fault, and passes without it in this very run."""


@pytest.mark.planted
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_planted_fault_is_noticed(tmp_path: Path, fault: Fault) -> None:
    run = run_tests(planted(fault, tmp_path / "copy"), fault.tests, fault.select)
    noticed = run.returncode == SOME_TEST_FAILED and "1 failed" in run.stdout
    assert noticed, f"no test noticed that {fault.name}:\n{run.stdout}\n{run.stderr}"


@pytest.mark.planted
def test_a_copy_without_a_fault_passes(tmp_path: Path) -> None:
    run = run_tests(copied(tmp_path / "copy"), ONE_FILE)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"


def test_the_text_of_each_fault_stands_exactly_once() -> None:
    counts = {
        f"{fault.file}: {fault.name}": (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old)
        if (ROOT / fault.file).is_file()
        else "no such file"
        for fault in FAULTS
    }
    assert {fault: count for fault, count in counts.items() if count != 1} == {}


def test_the_tests_of_each_fault_and_its_name_are_there_once() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert {fault.tests for fault in FAULTS if not (ROOT / fault.tests).is_file()} == set()


def test_each_fault_selects_some_of_its_tests() -> None:
    listed = run_pytest(ROOT, "--collect-only", "-q", "-rs", *sorted({fault.tests for fault in FAULTS})).stdout
    found = [line.lower().split("::", 1) for line in listed.splitlines() if "::" in line]
    not_collected = set(re.findall(r"^SKIPPED \[\d+\] ([^:]+):", listed, re.MULTILINE))
    assert [
        f"{fault.tests}: {fault.select}"
        for fault in FAULTS
        if fault.tests not in not_collected
        and not any(file == fault.tests and is_selected(test, fault.select) for file, test in found)
    ] == []


def planted(fault: Fault, top: Path) -> Path:
    """Return the top of a copy that has the fault; the kernel is compiled again when the fault is in its sources."""
    copied(top)
    path = top / fault.file
    text = path.read_text(encoding="utf-8")
    assert text.count(fault.old) == 1, f"{fault.file} does not hold {fault.old!r} once"
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    if fault.is_compiled:
        recipe = top / "setup.py"  # optimization takes more than half of the build and changes no fault
        recipe.write_text(recipe.read_text(encoding="utf-8").replace('"-O3"', '"-O0"'), encoding="utf-8")
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--build-temp", "build"]
        run = subprocess.run(build, cwd=top, env=environment(), capture_output=True, text=True, check=False)
        assert run.returncode == 0, f"{fault.name} does not compile:\n{run.stdout}\n{run.stderr}"
    return top


def copied(top: Path) -> Path:
    """Copy what the tests need. Copies keep their times, so the compiled kernel stays newer than its sources."""
    ignored = shutil.ignore_patterns("__pycache__", "_kernel.c", "interop", ".*")
    top.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, top / name, ignore=ignored, symlinks=True)
        else:
            shutil.copy2(source, top / name)
    return top


def run_tests(top: Path, tests: str, select: str = "") -> subprocess.CompletedProcess[str]:
    """Run tests of a copy up to the first failure, in a process of their own that sees nothing but the copy."""
    chosen = ["-k", select] if select else []
    return run_pytest(top, "-q", "-x", "--random-seed", "0", "--hypothesis-profile", "planted", tests, *chosen)


def run_pytest(top: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with temporary directories of its own.

    Several that share them clean up after each other, and one may end with a warning about a listing that it left.
    """
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    with tempfile.TemporaryDirectory(prefix="rmq-planted-") as base:
        command += ["--basetemp", f"{base}/tests"]
        return subprocess.run(command, cwd=top, env=environment(), capture_output=True, text=True, check=False)


def is_selected(test: str, select: str) -> bool:
    """Tell whether an expression of ``-k`` selects a test; it knows ``and`` and ``or``, and no brackets."""
    return any(all(word in test for word in each.split(" and ")) for each in select.split(" or "))


def environment() -> dict[str, str]:
    """Return the environment of a run in a copy: all random cases and one seed, whatever this very run takes."""
    own = {"PYTHONPATH", "PYTEST_ADDOPTS", "RMQ_TEST_SHARE"}
    kept = {name: value for name, value in os.environ.items() if name not in own}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "RMQ_TEST_SEED": "0"}
