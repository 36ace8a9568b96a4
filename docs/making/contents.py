"""The table of contents is what a reader of the repository sees: the README of the folder, and of each folder in it.

Each heading of ``docs/README.md`` is a part of the site, with the pages that are linked below it, in their order and
under the words of their links. A folder with a README of its own is one entry there, and that README lists the pages of
its folder; pages that it does not name follow in the order of their names. A page that nothing lists is a warning of
Sphinx, which fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s]+\.md)(?:#[^)\s]*)?\)")
_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_HOME = "docs/README"


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx call this module for each page that it reads."""
    app.connect("source-read", _add_contents)
    return {"parallel_read_safe": True}


def _add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    if not docname.startswith("docs/") or Path(docname).name != "README":
        return
    root, text = Path(app.srcdir), source[0]
    if docname == _HOME:
        source[0] += "".join(_tree(entries, caption) for caption, entries in parts(root, text))
    else:
        named = _entries(root, docname, text)
        source[0] += _tree(named | _unnamed(root, docname, named), "")


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
