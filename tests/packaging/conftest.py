"""One source distribution, one wheel and one environment for a whole run of pytest, whatever its number of workers."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.packaging.distributions import build_sdist, build_wheel_quickly, install_alone, unpack
from tests.support.host.once import Once

DEPENDENCIES = Path(click.__file__).parents[1]
"""Where this environment has what the package depends on. An editable install leaves nothing of the package there."""


@pytest.fixture(scope="session")
def sdist(once: Once) -> Path:
    """The unpacked source distribution of this tree."""
    return once("sdist", lambda directory: unpack(build_sdist(directory), directory / "unpacked"))


@pytest.fixture(scope="session")
def wheel(once: Once, sdist: Path) -> Path:
    """A wheel that was built from a copy of the source distribution, without optimising."""
    return once("wheel", lambda directory: build_wheel_quickly(sdist, directory))


@pytest.fixture(scope="session")
def environment(once: Once, wheel: Path) -> Path:
    """A fresh environment with the wheel; its dependencies are those of this one."""
    return once("environment", lambda directory: install_alone(wheel, directory / "venv", DEPENDENCIES))
