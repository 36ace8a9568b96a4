"""The page ``docs/results/reliability.md``, made from the recorded results."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
_WIDTH = 120
PAGE = Path(__file__).parents[2] / "docs" / "results" / "reliability.md"

_HEAD = """\
# What the rigs found

Written by `make torture` (`python -m tests.torture`) from `tests/torture/results/`; a quick part of every rig is in
`make test-all`. A run is repeated with `python -m tests.torture RIG --seed SEED --rounds ROUNDS`. Each rig tries to
refute a claim; figures that would refute it are 0 or stand under "Refuted".
"""


def write_page() -> None:
    """Write the page from the results that are there."""
    from tests.torture.rigs import RIGS  # noqa: PLC0415 - the rigs are many, and none is needed to render

    paths = [path for name in RIGS if (path := RESULTS / f"{name}.json").exists()]
    results = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    PAGE.write_text(page(results), encoding="utf-8")


def page(results: list[dict[str, Any]]) -> str:
    """Return the page for these results, in their order."""
    return "\n".join([_HEAD, *(_section(result) for result in results)])


def _section(result: dict[str, Any]) -> str:
    lines = [f"## {result['rig']}", "", textwrap.fill(result["claim"], _WIDTH), ""]
    if result["skipped"]:
        return "\n".join([*lines, f"Skipped: {result['skipped']}", ""])
    lines += ["| figure | value |", "| --- | ---: |"]
    lines += [f"| {name} | {_shown(value)} |" for name, value in result["figures"].items()]
    run = f"Seed {result['seed']}, rounds {result['rounds']:,}, {result['seconds']:,} s on {result['day']}"
    lines += ["", textwrap.fill(f"{run}, Linux {result['kernel']}, Python {result['python']}.", _WIDTH), ""]
    if result["problems"]:
        lines += ["Refuted:", "", *(f"- {problem}" for problem in result["problems"][:20]), ""]
    return "\n".join(lines)


def _shown(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
