"""What every test relies on: a compiled kernel that belongs to its sources, and no time limit per example.

Nothing here imports the packages at the top, so that a missing or stale kernel is one clear line and
not a traceback.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from hypothesis import Phase, settings

KERNEL = Path(__file__).parents[1] / "store" / "kernel"

# How long one example takes says nothing on a machine that others use too.
settings.register_profile("repository", deadline=None, print_blob=True)
settings.load_profile("repository")

# For a fault that somebody planted: that it is found is enough, and the smallest example would take minutes.
settings.register_profile(
    "planted", parent=settings.get_profile("repository"), phases=(Phase.explicit, Phase.generate), database=None
)


def pytest_configure() -> None:
    """Stop the run when the kernel is not the one that its sources would give."""
    if problem := kernel_problem(KERNEL):
        raise pytest.UsageError(f"{problem}: run `make install`")


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
