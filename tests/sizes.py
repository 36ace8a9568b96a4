"""Sizes: the largest folders, files and functions, for a reader who decides whether one has a second subject.

``python -m tests.sizes`` prints those above the usual sizes. No size fails anything: subjects shape the tree.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES, LINES, FUNCTION_LINES = 12, 500, 60
"""What most folders, files and functions stay below."""

SERIES = ("docs/decisions", "benchmarks/results", "tests/torture/results")
"""Folders of numbered or recorded pages, which are no rooms."""

KERNEL_FUNCTION = re.compile(
    r"^(?P<indent> *)(?:cdef|cpdef|def)\b[^\n=]*?(?P<name>\w+)\([^\n]*\n"
    r"(?:(?:(?P=indent) +[^\n]*| *|(?P=indent)\)[^\n]*)\n)*",
    re.MULTILINE,
)
"""A function of Cython: its first line, and those below that are indented deeper, empty, or close its parameters."""


def main() -> None:
    """Print a line for each folder, file and function above the usual size, the largest first."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.splitlines() if not (ROOT / name).is_symlink()]
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in files)
    found = [(count, f"{folder}: {count} files") for folder, count in folders.items() if folder not in SERIES]
    show(each for each in found if each[0] > FILES)
    sources = [path for path in files if path.suffix in {".py", ".pyx", ".pxi", ".h"}]
    lengths = ((len(path.read_text(encoding="utf-8").splitlines()), path) for path in sources)
    show((lines, f"{path.relative_to(ROOT)}: {lines} lines") for lines, path in lengths if lines >= LINES)
    functions = ((lines, path, name) for path in sources for name, lines in functions_of(path))
    show(
        (lines, f"{path.relative_to(ROOT)}: {name} has {lines} lines")
        for lines, path, name in functions
        if lines >= FUNCTION_LINES
    )


def show(found: Iterator[tuple[int, str]]) -> None:
    """Print the lines, the largest first."""
    for _size, line in sorted(found, reverse=True):
        print(line)


def functions_of(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the functions of a source file, with their lengths in lines."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                yield node.name, node.end_lineno - node.lineno + 1
        return
    for found in KERNEL_FUNCTION.finditer(text):
        yield found["name"], found[0].rstrip().count("\n") + 1


if __name__ == "__main__":
    main()
