"""The crash tests can fail: each of these faults, planted into a copy of the packages, is noticed by them.

A suite that has never failed proves nothing. The faults are those that a careless change would make.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.planted import faults
from tests.planted.faults import Fault

ROOT = Path(__file__).parents[2]
COPIED = ("store", "rmqclient", "workers", "tests", "pyproject.toml", "setup.py", "README.md")
SOME_TEST_FAILED = 1
"""Exit status of pytest; there are others for tests that cannot be collected, and for none that were selected."""

FAULTS = sorted(faults.FAULTS, key=lambda fault: fault.is_compiled)
FAULT_IDS = [fault.name.replace(" ", "-") for fault in FAULTS]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Path]]]:
    """Begin to make a copy of the packages for each fault in the kernel; the other faults are tested meanwhile."""
    directory = tmp_path_factory.mktemp("planted")
    with ThreadPoolExecutor(2) as pool:
        yield {
            fault.name: pool.submit(planted, fault, directory / str(number))
            for number, fault in enumerate(FAULTS)
            if fault.is_compiled
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=FAULT_IDS)
def test_a_planted_fault_is_noticed(compiled: dict[str, Future[Path]], tmp_path: Path, fault: Fault) -> None:
    top = compiled[fault.name].result() if fault.is_compiled else planted(fault, tmp_path / "copy")
    run = run_tests(top, fault.tests, fault.select)
    noticed = run.returncode == SOME_TEST_FAILED and "1 failed" in run.stdout
    assert noticed, f"nobody noticed that {fault.name}:\n{run.stdout}\n{run.stderr}"


@pytest.mark.slow
def test_a_copy_without_a_fault_passes(tmp_path: Path) -> None:
    top = copied(tmp_path / "copy")
    selected = {(fault.tests, fault.select) for fault in FAULTS}
    for tests in sorted({tests for tests, _ in selected}):
        selects = [select for other, select in selected if other == tests]
        run = run_tests(top, tests, "" if "" in selects else " or ".join(sorted(set(selects))))
        assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"


@pytest.mark.parametrize("fault", FAULTS, ids=FAULT_IDS)
def test_the_text_of_a_fault_stands_exactly_once(fault: Fault) -> None:
    assert (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old) == 1


def planted(fault: Fault, top: Path) -> Path:
    """Return the top of a copy with the fault in it, compiled if it is in the kernel."""
    copied(top)
    path = top / fault.file
    text = path.read_text(encoding="utf-8")
    assert text.count(fault.old) == 1, f"{fault.file} does not hold {fault.old!r} once"
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    if fault.is_compiled:
        recipe = top / "setup.py"
        recipe.write_text(
            recipe.read_text(encoding="utf-8").replace('"-O3"', '"-O1"'), encoding="utf-8"
        )  # in half the time
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--build-temp", "build"]
        run = subprocess.run(build, cwd=top, env=environment(), capture_output=True, text=True, check=False)
        assert run.returncode == 0, f"{fault.name} does not compile:\n{run.stdout}\n{run.stderr}"
    return top


def copied(top: Path) -> Path:
    """Copy what the tests need; times are kept, so that the compiled kernel is not older than its sources."""
    ignored = shutil.ignore_patterns("__pycache__", "_kernel.c", ".*")
    top.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, top / name, ignore=ignored, symlinks=True)
        else:
            shutil.copy2(source, top / name)
    return top


def run_tests(top: Path, tests: str, select: str) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy up to the first failure, in a process of their own that sees nothing but the copy."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile", "planted"]
    command.append(tests)
    if select:
        command += ["-k", select]
    return subprocess.run(command, cwd=top, env=environment(), capture_output=True, text=True, check=False)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTEST_ADDOPTS"}}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "RMQ_TEST_LINES_APART": "40"}
