"""The builder of the site: HTML as Sphinx makes it, with addresses that do not repeat where a page lies here.

========================  ==========================
page                      address
========================  ==========================
``docs/README.md``        ``index.html``
``docs/guide/timer.md``   ``guide/timer.html``
``docs/serve/README.md``  ``serve/index.html``
``CHANGELOG.md``          ``project/changelog.html``
========================  ==========================
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

_PICTURES = ("*.svg", "*.webp", "*.png")


class Site(StandaloneHTMLBuilder):
    """HTML whose pages lie at :func:`address_of`, the search's answers included."""

    name = "site"

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:  # noqa: ARG002 - Sphinx gives it
        """Return the address of a page."""
        return f"{address_of(docname)}.html"

    def get_output_path(self, page_name: str, /) -> Any:
        """Return the file of a page."""
        return super().get_output_path(address_of(page_name))

    def prepare_writing(self, docnames: set[str]) -> None:
        """Let the search name pages by their addresses."""
        super().prepare_writing(docnames)
        if self.indexer is not None:
            freeze = self.indexer.freeze

            def with_addresses() -> dict[str, Any]:
                frozen = freeze()
                return {**frozen, "docnames": [address_of(name) for name in frozen["docnames"]]}

            self.indexer.freeze = with_addresses  # type: ignore[method-assign]


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the builder known, and copy the pictures that pages name in HTML."""
    app.add_builder(Site)
    app.connect("build-finished", _copy_pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def address_of(page: str) -> str:
    """Return the address of a page, without its ending."""
    path = Path(page)
    if path.name.isupper() and path.parent == Path():
        return f"project/{page.lower()}"
    if path.name == "README":
        path = path.with_name("index")
    return path.as_posix().removeprefix("docs/")


def _copy_pictures(app: Sphinx, error: Exception | None) -> None:
    docs = Path(app.srcdir) / "docs"
    if error is None:
        for picture in sorted(path for pattern in _PICTURES for path in docs.rglob(pattern)):
            target = Path(app.outdir) / picture.relative_to(docs)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, target)
