"""Package: one of PyPI that a benchmark compares with, in a directory of its own and not in the environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PIP_S = 300


def installed(package: str, target: Path) -> Path | str:
    """Install a package into a directory; return that, or why it is not there."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*command, "--target", str(target), package], capture_output=True, text=True, timeout=_PIP_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"pip did not install {package} in {_PIP_S} s"
    if done.returncode:
        return f"pip did not install {package}: {' '.join(done.stderr.strip().splitlines()[-1:])}"
    return target
