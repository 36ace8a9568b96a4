"""What every test relies on: a kernel that is newer than its sources, no time limit per example, and a random order.

The order of a run follows from its seed, which the header shows; ``--random-seed`` repeats the order. Files come in
random order, and so do the tests of a file; tests that share a costly fixture stay together, as pytest arranges them.

This file imports nothing from the package, so a missing or stale kernel is one clear line and not a traceback.
"""

from __future__ import annotations

import gc
import random
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings

from tests.support.host.block_groups import spread_folders
from tests.support.host.once import Once, once_beneath
from tests.support.host.skips import told
from tests.support.sweeps import share_of

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

KERNEL = Path(__file__).parents[1] / "store" / "kernel"

# How long one example takes says nothing on a machine that others use too.
settings.register_profile("repository", deadline=None, print_blob=True, max_examples=share_of(100))
settings.load_profile("repository")

# For a fault that somebody planted: that it is found is enough, and the smallest example would take minutes.
settings.register_profile(
    "planted", parent=settings.get_profile("repository"), phases=(Phase.explicit, Phase.generate), database=None
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that repeats an order."""
    parser.addoption(
        "--random-seed", type=int, help="order of the tests, as the header of a run showed it; 0: as they are written"
    )
    parser.addoption(
        "--passed", type=Path, help="file of tests that are left out; those that pass in this run are added to it"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Stop the run when the kernel is older than its sources; choose the order, for all workers of the run."""
    if problem := kernel_problem(KERNEL):
        raise pytest.UsageError(f"{problem}: run `make install`")
    if hasattr(config, "workerinput"):
        config.option.random_seed = config.workerinput["random_seed"]
    elif config.option.random_seed is None:
        in_a_debugger = config.option.usepdb or config.option.trace
        config.option.random_seed = 0 if in_a_debugger else random.SystemRandom().randrange(1, 1 << 32)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Hand the seed to a worker of pytest-xdist."""
    node.workerinput["random_seed"] = node.config.option.random_seed


def pytest_report_header(config: pytest.Config) -> str:
    """Show the seed."""
    return f"--random-seed={config.option.random_seed}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode, config: pytest.Config
) -> None:
    """Say in one line what was skipped, and show the seed beside failures as well: a quiet run has no header.

    What passed goes into the file of ``--passed``.
    """
    skipped = [reason_of(report) for report in terminalreporter.stats.get("skipped", ())]
    if line := told(skipped):
        terminalreporter.write_line(line)
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        terminalreporter.write_line(f"--random-seed={config.option.random_seed}")
    if config.option.passed is not None:
        passed = {report.nodeid for report in terminalreporter.stats.get("passed", ())}
        config.option.passed.write_text("".join(f"{name}\n" for name in sorted(passed_before(config) | passed)))


def pytest_collection_finish() -> None:
    """Keep the collector from looking through thousands of tests again and again: a full collection took 0.25 s."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has passed before, and put the others into the order of the seed.

    That happens before pytest brings the users of one fixture together.
    """
    if passed := passed_before(config):
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
    if seed := config.option.random_seed:
        drawn = random.Random(seed)
        places = {path: drawn.random() for path in sorted({item.path for item in items})}
        drawn.shuffle(items)
        items.sort(key=lambda item: places[item.path])


@pytest.fixture(scope="session", autouse=True)
def _folders_apart(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let each test make its files where hardly any other test has just removed some: that takes half the time."""
    spread_folders(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Once:
    """Return a function that makes something once, in a directory of its name, for all workers of this run."""
    base = tmp_path_factory.getbasetemp()
    return once_beneath(base.parent if hasattr(pytestconfig, "workerinput") else base)


def passed_before(config: pytest.Config) -> set[str]:
    """Return the names in the file of ``--passed``."""
    file: Path | None = config.option.passed
    return set(file.read_text().splitlines()) if file is not None and file.exists() else set()


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test, or a whole file, was skipped."""
    assert isinstance(report.longrepr, tuple)  # of a skip: file, line, reason
    return report.longrepr[2].removeprefix("Skipped: ")


def kernel_problem(folder: Path) -> str | None:
    """Return what is wrong with the compiled kernel in ``folder``, or None when it is newer than its sources."""
    kernel = next((path for suffix in EXTENSION_SUFFIXES if (path := folder / f"_kernel{suffix}").exists()), None)
    if kernel is None:
        return "store/kernel/_kernel is not compiled for this Python"
    built = kernel.stat().st_mtime_ns
    stale = sorted(path.name for path in kernel_sources(folder) if path.stat().st_mtime_ns > built)
    return f"store/kernel/{kernel.name} is older than {', '.join(stale)}" if stale else None


def kernel_sources(folder: Path) -> list[Path]:
    """Return the files that the kernel is compiled from."""
    return [*folder.glob("_kernel.pyx"), *folder.rglob("*.pxi"), *folder.glob("*.h")]
