"""Recording: what ``perf record`` sees of a work, by function and by part of the system."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import REPOSITORY
from benchmarks.profiling.works import Work

_COMMAND = "from benchmarks.profiling.works import main; main()"
_RECORD = ("perf", "record", "-q", "-e", "cpu-clock", "-F", "999")
"""The clock of the processor's time and not its cycles, which a virtual machine may not count."""
_PARTS = {
    "[kernel": "Linux",
    "[vdso": "Linux",
    "_kernel.": "our kernel",
    "python": "the interpreter",
    "libpython": "the interpreter",
}
_OTHER = "libraries"
_OF_CYTHON = re.compile(r"^__pyx_\w*?_kernel_")
"""What stands before the name of a function of our kernel in C; the length of a name stands before each name."""
_LENGTH = re.compile(r"(^|_)\d+(?=_*[A-Za-z])")
_LEAST_PERCENT = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function and its part of all samples."""

    percent: float
    part: str
    """Of the system: Linux, our kernel, the interpreter, libraries."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """All processes of one work, from their start to their end."""

    title: str
    count: int
    parts: dict[str, float]
    """Percent of the samples, by part of the system."""
    functions: list[Function]
    """Those with at least a hundredth of the samples."""


def why_not() -> str:
    """Return why nothing can be recorded here; empty if something can."""
    if shutil.which("perf") is None:
        return "perf is missing: it is in the package linux-perf"
    with tempfile.TemporaryDirectory() as directory:
        command = [*_RECORD, "-o", f"{directory}/perf.data", "--", "true"]
        recorded = subprocess.run(command, capture_output=True, check=False)
    if recorded.returncode:
        return "perf may not record here: see /proc/sys/kernel/perf_event_paranoid"
    return ""


def record(name: str, work: Work, count: int, directory: Path) -> Profile:
    """Prepare a work, then run it under ``perf record``. Raises CalledProcessError."""
    root, data = directory / "store", directory / "perf.data"
    work.prepare(root, count)
    command = [sys.executable, "-c", _COMMAND, name, str(root), str(count)]
    subprocess.run([*_RECORD, "-o", str(data), "--", *command], cwd=REPOSITORY, check=True)
    report = ["perf", "report", "-i", str(data), "--stdio", "-q", "-F", "overhead,dso,sym", "-t", "|"]
    found = subprocess.run(report, capture_output=True, text=True, check=True)
    return profile(work.title, count, found.stdout)


def profile(title: str, count: int, report: str) -> Profile:
    """Return what lines as ``12.34%|[kernel.kallsyms]|[k] clear_page_erms`` say."""
    parts: dict[str, float] = defaultdict(float)
    functions = list[Function]()
    for line in report.splitlines():
        if line.count("|") != 2:
            continue
        percent, image, symbol = (field.strip() for field in line.split("|"))
        function = Function(percent=float(percent.rstrip("%")), part=_part(image), name=_name(symbol[4:]))
        parts[function.part] += function.percent
        functions.append(function)
    most = [each for each in functions if each.percent >= _LEAST_PERCENT]
    return Profile(title=title, count=count, parts=dict(parts), functions=most)


def _name(symbol: str) -> str:
    own, is_ours = _OF_CYTHON.subn("", symbol)
    return _LENGTH.sub(r"\1", own).lstrip("_") if is_ours else symbol


def _part(image: str) -> str:
    return next((part for prefix, part in _PARTS.items() if image.startswith(prefix)), _OTHER)
