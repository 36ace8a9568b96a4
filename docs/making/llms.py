"""``llms.txt``: the pages by part, each with its address and its first sentence, after https://llmstxt.org.

``llms-full.txt`` has the pages themselves, in the same order. Both are written beside the site, from its sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx

from making.addresses import address_of
from making.contents import pages_of, parts

_HOME = "docs/README"
_COMMENT = re.compile(r"^<!--.*?-->\n?", re.DOTALL | re.MULTILINE)
_SENTENCE = re.compile(r"^(?P<words>[A-Z`*\[][^|]+?[.?])(?:\s|\Z)", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx call this module at the end."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        root, target = Path(app.srcdir), Path(app.outdir)
        (target / "llms.txt").write_text(contents(root), encoding="utf-8")
        (target / "llms-full.txt").write_text(everything(root), encoding="utf-8")


def contents(root: Path) -> str:
    """Return the title and the first sentence of the home page, and below each part a line for every page."""
    lines = ["# rmqclient", "", f"> {first_sentence(text_of(root, _HOME))}"]
    for caption, pages in _parts(root):
        lines += ["", f"## {caption}", ""]
        for page in pages:
            text = text_of(root, page)
            title = re.search(r"^# (.+)$", text, re.MULTILINE)
            assert title is not None, f"{page} has no title"
            lines.append(f"- [{title[1]}]({address_of(page)}.html): {first_sentence(text)}")
    return "\n".join([*lines, ""])


def everything(root: Path) -> str:
    """Return the pages of all parts as one text, each below a line with its address."""
    pages = [_HOME, *(page for _, listed in _parts(root) for page in listed)]
    return "\n".join(f"<!-- {address_of(page)}.html -->\n\n{text_of(root, page)}" for page in pages)


def _parts(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each part with its pages; those of a folder follow its README."""
    for caption, pages in parts(root, text_of(root, _HOME)):
        listed = []
        for page in pages:
            listed.append(page)
            if page.startswith("docs/") and page.endswith("/README"):
                listed += pages_of(root, page, text_of(root, page))
        yield caption, listed


def text_of(root: Path, page: str) -> str:
    """Return a page without comments, which are for the tests."""
    return _COMMENT.sub("", (root / f"{page}.md").read_text(encoding="utf-8"))


def first_sentence(text: str) -> str:
    """Return the first sentence of the prose of a page, without links, on one line."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = _SENTENCE.search(prose)
    return _LINK.sub(r"\1", " ".join(found["words"].split())) if found else ""
