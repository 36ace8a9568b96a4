"""The kernel's mutex under this C library and under musl: a small program, compiled and run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNEL = Path(__file__).parents[4] / "store" / "kernel"
SYSTEM = [f"-idirafter{folder}" for folder in ("/usr/include", "/usr/include/x86_64-linux-gnu")]  # Linux's own headers
PROMISES = 13

BUILDS = {
    "this library": ["cc"],
    "musl": ["musl-gcc", "-static", *SYSTEM],
}


@pytest.mark.parametrize("build", BUILDS)
def test_the_mutex_keeps_its_promises_with(build: str, tmp_path: Path) -> None:
    command = BUILDS[build]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} on this host")
    program = tmp_path / "program"
    (tmp_path / "lock").touch()
    flags = ["-O2", "-D_GNU_SOURCE", "-pthread", "-Wno-unused-function", f"-I{KERNEL}"]
    source = str(HERE / "mutex_program.c")
    subprocess.run([command[0], *flags, source, *command[1:], "-o", str(program)], check=True, timeout=60)
    told = subprocess.run(
        [str(program), str(tmp_path / "lock")], check=True, capture_output=True, text=True, timeout=60
    ).stdout.splitlines()
    assert len(told) == PROMISES
    assert [line for line in told if not line.endswith(": yes")] == []
