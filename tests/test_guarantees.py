"""Every promise in docs/guarantees.md has a test, and every test that claims to prove one names a promise.

A promise is a line that begins with its number in bold: ``**G1** Nothing acknowledged is lost ...``. A test
carries the number in a marker, ``guarantee("G1")`` of ``pytest.mark``.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "guarantees.md"


def test_the_page_makes_promises_and_numbers_each_once() -> None:
    numbers = promises()
    assert numbers, "docs/guarantees.md has no line that begins with **G1** or the like"
    assert [number for number, times in Counter(numbers).items() if times > 1] == []


def test_every_promise_has_a_test() -> None:
    unproven = set(promises()) - {number for number, _ in proofs()}
    assert unproven == set(), f"without a test: {sorted(unproven)}"


def test_every_marker_names_a_promise() -> None:
    made = set(promises())
    unknown = [f"{place}: {number}" for number, place in proofs() if number not in made]
    assert unknown == []


def promises() -> list[str]:
    return re.findall(r"^(?:[-*] +)?\*\*(G\d+)\*\*", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


@cache
def proofs() -> tuple[tuple[str, str], ...]:
    """Return (number, place) for each number that a marker on a test function or a test class claims."""
    return tuple(_proofs())


def _proofs() -> Iterator[tuple[str, str]]:
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "guarantee" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.lower().startswith("test"):
                for decorator in node.decorator_list:
                    place = f"{path.relative_to(TESTS).as_posix()}, {node.name}"
                    yield from ((number, place) for number in claimed(decorator, place))


def claimed(decorator: ast.expr, place: str) -> list[str]:
    """Return the numbers in one decorator; none when it is not the marker."""
    marker = decorator.func if isinstance(decorator, ast.Call) else decorator
    if not ast.unparse(marker).endswith("mark.guarantee"):
        return []
    arguments = decorator.args if isinstance(decorator, ast.Call) else []
    numbers = [node.value for node in arguments if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert numbers, f"{place}: the marker takes the number of a promise, as text"
    return numbers
