"""Environment: where the clients of the peers are installed, apart from ours.

Each package is installed for itself, so that one that cannot be had costs its own peer only. Programs that are not on
the machine are unpacked from Debian's packages, without installing them: nothing is started by that, and nothing
outside of ``.venv-peers`` changes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks.peers.processes import DEBIAN, ENVIRONMENT

PYTHON = ENVIRONMENT / "bin" / "python"
_PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check", "--retries", "1", "install")
_INSTALL_S = 600.0
_OURS = ("orjson",)
"""What our own modules import there, beside the client of a peer."""


def install(packages: Iterable[str]) -> str:
    """Install what is not there yet; return why that failed, empty if it did not."""
    wanted = [package for package in (*_OURS, *packages) if not _marker(package).exists()]
    if not wanted:
        return ""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    if said := _failure([str(PYTHON), *_PIP, *wanted]):
        return f"pip could not install {' '.join(wanted)}: {said}"
    for package in wanted:
        _marker(package).touch()
    return ""


def unpack(packages: Iterable[str]) -> str:
    """Fetch packages of Debian and unpack them; return why that failed, empty if it did not."""
    wanted = [package for package in packages if not (DEBIAN / package).exists()]
    if not wanted:
        return ""
    if shutil.which("apt-get") is None:
        return f"this is no Debian, and {wanted[-1]} is not installed"
    DEBIAN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        if said := _failure(["apt-get", "download", *wanted], Path(directory)):
            return f"apt-get could not fetch {' '.join(wanted)}: {said}"
        for path in Path(directory).glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(path), str(DEBIAN)], check=True)
    for package in wanted:
        (DEBIAN / package).touch()
    return ""


def _failure(command: list[str], directory: Path | None = None) -> str:
    """Run a command; return the last line that it printed if it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=directory, timeout=_INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        return f"it took more than {_INSTALL_S:.0f} s"
    return done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}" if done.returncode else ""


def _marker(package: str) -> Path:
    return ENVIRONMENT / f".{package.replace('/', '_')}"
