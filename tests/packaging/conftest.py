"""One source distribution, one wheel and one environment for a whole run of pytest, whatever its number of workers."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from tests.packaging.distributions import build_sdist, build_wheel_quickly, install_alone, unpack

DEPENDENCIES = Path(click.__file__).parents[1]
"""Where this environment has what the package depends on. An editable install leaves nothing of the package there."""

Shared = Callable[[str, Callable[[Path], Path]], Path]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Shared:
    """Return a function that makes something once, in a directory of its name, for all workers of this run."""
    base = tmp_path_factory.getbasetemp()
    base = base if worker_id == "master" else base.parent

    def make(name: str, build: Callable[[Path], Path]) -> Path:
        directory, made = base / name, base / f"{name}.made"
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                directory.mkdir()
                made.write_text(str(build(directory)), encoding="utf-8")
        return Path(made.read_text(encoding="utf-8"))

    return make


@pytest.fixture(scope="session")
def sdist(shared: Shared) -> Path:
    """The unpacked source distribution of this tree."""
    return shared("sdist", lambda directory: unpack(build_sdist(directory), directory / "unpacked"))


@pytest.fixture(scope="session")
def wheel(shared: Shared, sdist: Path) -> Path:
    """A wheel that was built from a copy of the source distribution, without optimising."""
    return shared("wheel", lambda directory: build_wheel_quickly(sdist, directory))


@pytest.fixture(scope="session")
def environment(shared: Shared, wheel: Path) -> Path:
    """A fresh environment with the wheel; its dependencies are those of this one."""
    return shared("environment", lambda directory: install_alone(wheel, directory / "venv", DEPENDENCIES))
