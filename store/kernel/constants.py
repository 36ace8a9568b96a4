"""Constants of the layout and of the crash points, as the kernel's source includes them: ``constants.pxi``.

``setup.py`` runs this file by its path, without the package, which needs the kernel that is being built.

=============================  =====================================================
name in the kernel             number
=============================  =====================================================
``H_WRITTEN_TO``               byte of a field, in the table of that letter
``RUNTIME_HEADER_SIZE``        bytes of a table
``ACK_WINDOW``                 a number that ``layout.py`` has by this name
``FOUND_BAD_CRC``              one of ``layout.FOUND``
``AT_APPEND_LOCKED``           one of ``CrashPoint``
``LAYOUT_FINGERPRINT``         of all tables and numbers that the kernel was built with
=============================  =====================================================
"""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TABLES = {
    "R": "RECORD_HEADER",
    "B": "BLANK_RECORD",
    "E": "CONSUME_QUEUE_ENTRY",
    "I": "INDEX_HEADER",
    "X": "INDEX_ENTRY",
    "H": "RUNTIME_HEADER",
    "Q": "QUEUE_SLOT",
    "G": "GROUP_QUEUE_SLOT",
    "U": "RUNNING_SLOT",
    "W": "HANDLING_SLOT",
    "T": "TIMER_HEADER",
    "C": "CLOCK",
}
"""What the kernel reads and writes, by the letter of its fields."""

_LARGEST = 2**31 - 1
"""Of a constant of C; larger numbers of the layout are nothing for the kernel."""


def write(store: Path, path: Path) -> None:
    """Write ``constants.pxi`` from what stands in ``layout.py`` and ``crash_points.py``, unless it says so already."""
    layout = runpy.run_path(str(store / "layout.py"))
    points = _crash_points((store / "crash_points.py").read_text(encoding="utf-8"))
    lines = [f"    {name} = {number}" for name, number in (*_numbers(layout), *points)]
    text = "\n".join(["# made by constants.py", "cdef enum:", *lines, ""])
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _numbers(layout: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for letter, name in TABLES.items():
        table = layout[name]
        yield from ((f"{letter}_{field.upper()}", at) for field, at in table.at.items() if not field.startswith("_"))
        yield f"{name}_SIZE", table.size
    yield from ((f"FOUND_{name}", number) for name, number in layout["FOUND"].items())
    for name, value in layout.items():
        if name.isupper() and isinstance(value, int) and -_LARGEST <= value <= _LARGEST:
            yield name, value


def _crash_points(source: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == "CrashPoint":
            for point in node.body:
                if isinstance(point, ast.Assign):
                    (target,) = point.targets
                    yield f"AT_{ast.unparse(target)}", ast.literal_eval(point.value)
