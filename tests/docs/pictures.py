"""``python -m tests.docs.pictures``: pictures of four pages of the site that `make docs` has made."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from tests.docs.page import REPOSITORY

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LOOKED_AT = ("index", "start/tutorial", "explain/message", "reference/handling")
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def pictures(browser: Browser, site: Path) -> Iterator[tuple[str, Image.Image]]:
    """Yield name and picture of each page, scheme and size.

    Raises AssertionError for a page that scrolls sideways, lacks a picture, or says something on the console.
    """
    for scheme, size in product(SCHEMES, SIZES):
        yield from _pictures(browser, site, scheme, size)


def _pictures(
    browser: Browser, site: Path, scheme: Literal["light", "dark"], size: str
) -> Iterator[tuple[str, Image.Image]]:
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    context.set_default_timeout(120_000)
    page, told = context.new_page(), list[str]()
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    for name in LOOKED_AT:
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} scrolls sideways"
        assert page.evaluate("[...document.images].every(each => each.naturalWidth > 0)"), f"{name} lacks a picture"
        yield f"{scheme}/{name.replace('/', '-')}-{size}", Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    assert told == []
    context.close()


def main() -> None:
    """Take the pictures of the site in build/docs."""
    with sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        for name, picture in pictures(browser, REPOSITORY / "build" / "docs"):
            path = REPOSITORY / "docs" / "images" / f"{name}.webp"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.save(path, quality=78, method=6)
        browser.close()


if __name__ == "__main__":
    main()
