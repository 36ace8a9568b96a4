"""Files of the repository that pages link to: on the site each is a page with its text.

Files below ``docs``, such as units and boards, are for use: they are copied as they are.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

_LANGUAGES = {".py": "python", ".pyx": "cython", ".pxi": "cython", ".toml": "toml", ".yaml": "yaml", ".json": "json"}
_linked: set[str] = set()


class SourceLinks(SphinxTransform):
    """Turn links to files outside of ``docs`` into links to their pages."""

    default_priority = 900

    def apply(self, **_: Any) -> None:
        """Change the page that is being read."""
        root = Path(self.app.srcdir)
        for link in list(self.document.findall(addnodes.download_reference)):
            here = (root / self.env.docname).parent
            path = (here / link["reftarget"]).resolve().relative_to(root.resolve()).as_posix()
            if path.startswith("docs/"):
                continue
            _linked.add(path)
            address = self.app.builder.get_relative_uri(self.env.docname, f"source/{path}")
            link.replace_self(nodes.reference("", "", *link.children, refuri=address, internal=True))


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx change links, and ask for the pages at the end."""
    app.add_transform(SourceLinks)
    app.connect("html-collect-pages", _pages)
    return {"parallel_read_safe": False}


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    for path in sorted(_linked):
        text = (Path(app.srcdir) / path).read_text(encoding="utf-8")
        language = _LANGUAGES.get(Path(path).suffix, "text")
        shown = app.builder.highlighter.highlight_block(text, language, linenos="inline")  # type: ignore[attr-defined]
        body = f'<h1><code>{html.escape(path)}</code></h1>\n<div class="highlight-{language}">{shown}</div>'
        yield f"source/{path}", {"title": path, "body": body}, "page.html"
