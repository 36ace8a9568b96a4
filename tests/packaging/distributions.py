"""Distributions: the source distribution of this tree, the wheels built from it, and environments with one of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

TOP = Path(__file__).parents[2]
LINKED = tuple(sorted(path.name for path in (TOP / "rmqclient").iterdir() if path.is_symlink()))
"""The folders at the top that are installed under ``rmqclient``."""
FOLDERS = ("rmqclient", *LINKED, "tests")
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE")
MADE_BY_A_BUILD = shutil.ignore_patterns("*.so", "_kernel.c", "constants.pxi", "__pycache__", "*.egg-info")

SETTINGS_OF_OTHERS = ("PYTHON", "RMQ_", "PIP_CONFIG", "DJANGO_")


def build_sdist(directory: Path) -> Path:
    """Build the source distribution in a copy of the tree below ``directory``; return the archive."""
    tree = directory / "tree"
    for name in FOLDERS:
        shutil.copytree(TOP / name, tree / name, symlinks=True, ignore=MADE_BY_A_BUILD)
    for name in FILES:
        shutil.copy(TOP / name, tree)
    run(sys.executable, "-c", "from setuptools.build_meta import build_sdist; build_sdist('dist')", cwd=tree)
    (archive,) = (tree / "dist").iterdir()
    return archive


def unpack(archive: Path, directory: Path) -> Path:
    """Unpack a source distribution; return the one directory that it holds."""
    with tarfile.open(archive) as opened:
        opened.extractall(directory, filter="data")
    (unpacked,) = directory.iterdir()
    return unpacked


def build_wheel_quickly(sources: Path, directory: Path) -> Path:
    """Build a wheel offline, with what this environment has; without optimising, which takes a minute more."""
    copy = shutil.copytree(sources, directory / "sources")
    recipe = copy / "setup.py"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace('"-O3"', '"-O0"'), encoding="utf-8")
    command = (sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index")
    run(*command, "-w", "dist", ".", cwd=copy)
    (built,) = (copy / "dist").iterdir()
    return built


def install_alone(wheel: Path, directory: Path, dependencies: Path) -> Path:
    """Make an environment with nothing but a wheel; what it depends on is that of ``dependencies``."""
    venv.create(directory, symlinks=True)
    python = str(directory / "bin" / "python")
    command = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", str(wheel))
    run(*command, cwd=directory)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{dependencies}\n", encoding="utf-8")
    return directory


def run(*command: str, cwd: Path, variables: Mapping[str, str] = MappingProxyType({}), timeout_s: float = 600) -> str:
    """Run a command that must succeed, and return what it printed. Raises AssertionError with all that it said."""
    done = subprocess.run(
        command, cwd=cwd, env={**clean(), **variables}, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clean() -> dict[str, str]:
    """Return the variables of this process without those that add to the path or name a store."""
    return {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS_OF_OTHERS)}


def without_compiler(environment: Path, directory: Path) -> dict[str, str]:
    """Return variables whose path has an environment and no compiler: nothing can be built there."""
    directory.mkdir()
    for name in ("sh", "env"):
        found = shutil.which(name)
        assert found is not None
        (directory / name).symlink_to(found)
    return {"PATH": f"{environment / 'bin'}:{directory}"}
