"""Pages of Markdown, and the program that the Python blocks of a page make.

::

    <!-- before          what the reader knows, and the page does not show: run before the next block
    orders = [...]
    -->

    <!-- not run: it needs Spark -->          over a block that is only compiled, and why

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
    r"^<!-- before\n(?P<hidden>.*?)^-->$|^<!-- not run: (?P<reason>.+?) -->$|^```python\n(?P<shown>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)

_SESSION = re.compile(
    r"^<!-- a session(?:: it needs (?P<needs>[\w, ]+))? -->\n(?P<text>.*?)(?:^<!-- the session ends -->$|\Z)",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Block:
    """Python in a page: where it begins, and whether it is part of the program."""

    line: int
    text: str
    is_run: bool


def blocks_of(page: str) -> list[Block]:
    """Return the Python of a page in its order, that of the comments included, without that of a session."""
    blocks, is_run = [], True
    page = _SESSION.sub(lambda found: "\n" * found[0].count("\n"), page)
    for part in _PART.finditer(page):
        if part["reason"]:
            is_run = False
            continue
        text = part["hidden"] if part["shown"] is None else part["shown"]
        at = part.start("hidden" if part["shown"] is None else "shown")
        blocks.append(Block(page.count("\n", 0, at) + 1, text, is_run or part["shown"] is None))
        if part["shown"] is not None:
            is_run = True
    return blocks


def session_of(page: str) -> str | None:
    """Return the part of a page that is a session, None without one."""
    found = _SESSION.search(page)
    return None if found is None else found["text"]


def needs_of(page: str) -> list[str]:
    """Return the modules and programs without which the session of a page cannot be followed."""
    found = _SESSION.search(page)
    return [] if found is None or found["needs"] is None else found["needs"].split(", ")


def program_of(page: str) -> str:
    """Return the blocks that are run as one text, in which each line has the number that it has in the page."""
    lines: list[str] = []
    for block in blocks_of(page):
        if block.is_run:
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
