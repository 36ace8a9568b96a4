"""Pages of Markdown, and the program that the Python blocks of a page make.

::

    <!-- before          what the reader knows, and the page does not show: run before the next block
    orders = [...]
    -->

    <!-- run with Spark -->                   over a block that needs more than this package: see tests/docs/needs.py.
                                              It holds for the next block that is shown, and for what comes before it

    <!-- a session -->                        what follows is no part of the program: see tests/docs/sessions
    <!-- the session ends -->                 unless the session is the rest of the page
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "examples").rglob("*.md")]
)

_PART = re.compile(
    r"^<!-- before\n(?P<hidden>.*?)^-->$|^<!-- (?P<mark>[^\n]+) -->$|^```python\n(?P<shown>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)

_RUN_WITH = "run with "

_FOR_OTHERS = {"metrics"}
"""Comments that say nothing about a block: over the table that tests/metrics compares."""

_SESSION = re.compile(
    r"^<!-- a session(?:: it needs (?P<needs>[\w, ]+))? -->\n(?P<text>.*?)(?:^<!-- the session ends -->$|\Z)",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Block:
    """Python in a page: where it begins, and what it needs beside this package. A mark that is none is a need, too."""

    line: int
    text: str
    needs: frozenset[str]


def blocks_of(page: str) -> list[Block]:
    """Return the Python of a page in its order, that of the comments included, without that of a session."""
    blocks: list[Block] = []
    needs: frozenset[str] = frozenset()
    page = _SESSION.sub(lambda found: "\n" * found[0].count("\n"), page)
    for part in _PART.finditer(page):
        if mark := part["mark"]:
            needs = needs if mark in _FOR_OTHERS else _needs_of_mark(mark)
            continue
        name = "hidden" if part["shown"] is None else "shown"
        blocks.append(Block(page.count("\n", 0, part.start(name)) + 1, part[name], needs))
        if name == "shown":
            needs = frozenset()
    return blocks


def _needs_of_mark(mark: str) -> frozenset[str]:
    return frozenset(mark.removeprefix(_RUN_WITH).split(", ") if mark.startswith(_RUN_WITH) else [mark])


def session_of(page: str) -> str | None:
    """Return the part of a page that is a session, None without one."""
    found = _SESSION.search(page)
    return None if found is None else found["text"]


def needs_of(page: str) -> list[str]:
    """Return the modules and programs without which the session of a page cannot be followed."""
    found = _SESSION.search(page)
    return [] if found is None or found["needs"] is None else found["needs"].split(", ")


def program_of(page: str, needs: frozenset[str] = frozenset()) -> str:
    """Return the blocks that need no more than this as one text, whose lines have their numbers in the page."""
    lines: list[str] = []
    for block in blocks_of(page):
        if block.needs <= needs:
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    return "\n".join(lines) + "\n"


def links_of(page: str) -> list[str]:
    """Return the targets of the links of a page that name a file or a heading of this repository."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in target]


def headings_of(page: str) -> set[str]:
    """Return the names by which links find the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
