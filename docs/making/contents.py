"""The table of contents is what a reader of the repository sees: the README of the folder, and of each folder in it.

Each heading of ``docs/README.md`` is a part of the site, with the pages that are linked below it, in their order and
under the words of their links. A folder with a README of its own is one entry there, and that README lists the pages of
its folder; pages that it does not name follow in the order of their names. A page that nothing lists is a warning of
Sphinx, which fails the build.

In the side bar each part is folded, but that of the page that is shown; on the home page that is the first part.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s]+\.md)(?:#[^)\s]*)?\)")
_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_HOME = "docs/README"
_PART = re.compile(
    r'<p class="caption" role="heading"><span class="caption-text">(?P<caption>[^<]+)</span></p>\s*'
    r'(?P<pages><ul(?P<current> class="current")?>.*?</ul>)(?=\s*(?:<p class="caption"|\Z))',
    re.DOTALL,
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx call this module for each page that it reads."""
    app.connect("source-read", _add_contents)
    app.connect("html-page-context", _fold_parts, priority=900)  # after Furo, which makes the side bar
    return {"parallel_read_safe": True}


def _add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    if not docname.startswith("docs/") or Path(docname).name != "README":
        return
    root, text = Path(app.srcdir), source[0]
    if docname == _HOME:
        title, summary, rest = text.split("\n\n", 2)
        version = f"Version {app.config.version} · [What has changed](../CHANGELOG.md)"
        trees = "".join(_tree(entries, caption) for caption, entries in parts(root, text))
        source[0] = f"{title}\n\n{summary}\n\n{version}\n\n{rest}{trees}"
    else:
        source[0] += _tree(pages_of(root, docname, text), "")


def parts(root: Path, text: str) -> list[tuple[str, dict[str, str]]]:
    """Return the parts of the home page: a heading, and the pages below it with the words of their links.

    A page belongs to the first part that has it.
    """
    seen: set[str] = set()
    found = []
    for section in re.split(r"^## ", _CODE.sub("", text), flags=re.MULTILINE)[1:]:
        caption, _, below = section.partition("\n")
        entries = {page: words for page, words in _entries(root, _HOME, below).items() if page not in seen}
        seen.update(entries)
        if entries:
            found.append((caption, entries))
    return found


def pages_of(root: Path, docname: str, text: str) -> dict[str, str]:
    """Return the pages of a folder, whose README this is: the pages that it links to, then the others."""
    named = _entries(root, docname, text)
    return named | _unnamed(root, docname, named)


def _entries(root: Path, docname: str, text: str) -> dict[str, str]:
    """Return the pages that a text links to and that no README further down lists, with the words of the first link."""
    folder, found = (root / docname).parent, dict[str, str]()
    for link in _LINK.finditer(_CODE.sub("", text)):
        path = (folder / link["target"]).resolve()
        name = path.relative_to(root.resolve()).with_suffix("").as_posix()
        if path.exists() and _is_listed_by(root, name, docname):
            found.setdefault(name, link["text"][:1].upper() + link["text"][1:])
    return found


def _is_listed_by(root: Path, name: str, docname: str) -> bool:
    if name in {docname, "README"}:
        return False
    folder, listing = Path(name).parent, Path(docname).parent
    if docname != _HOME and folder != listing:
        return False
    if folder in (Path(), listing) or Path(name).name == "README":
        return True
    return not (root / folder / "README.md").exists()


def _unnamed(root: Path, docname: str, named: dict[str, str]) -> dict[str, str]:
    pages = (path.relative_to(root).with_suffix("").as_posix() for path in sorted((root / docname).parent.glob("*.md")))
    return {page: "" for page in pages if page != docname and page not in named}


def _tree(entries: dict[str, str], caption: str) -> str:
    lines = ["", "", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), ""]
    pages = [f"{words} </{page}>" if words else f"/{page}" for page, words in entries.items()]
    return "\n".join([*lines, *pages, "```", ""])


def _fold_parts(_: Sphinx, page: str, __: str, context: dict[str, Any], ___: object) -> None:
    """Make each part of the side bar one that opens: its caption is the handle."""
    tree = context.get("furo_navigation_tree", "")
    is_open = _PART.search(tree) if page == _HOME else None

    def fold(part: re.Match[str]) -> str:
        opened = " open" if part["current"] or (is_open and part.start() == is_open.start()) else ""
        return f'<details{opened}><summary class="caption">{part["caption"]}</summary>\n{part["pages"]}\n</details>'

    context["furo_navigation_tree"] = _PART.sub(fold, tree)
