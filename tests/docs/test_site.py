"""The site that `make docs` makes: without a warning, the same each time, offline, every link of it, and its looks.

The pictures are taken with the Chromium of the system; each of them is looked at for what breaks without a person
seeing it: an empty page, a page that scrolls sideways, a theme that does not follow, a word on the console.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import rmqclient
import rmqclient.errors
import rmqclient.testing
from tests.docs.page import PAGES, REPOSITORY

pytest.importorskip("playwright", reason="Playwright drives the browser")

from playwright.sync_api import Browser, sync_playwright

from tests.docs.pictures import CHROMIUM, pictures

# Found, and not imported: each worker of a quick run collects these sweeps, and they take 0.3 s to import
MISSING = [name for name in ("sphinx", "furo", "myst_parser") if importlib.util.find_spec(name) is None]

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no browser: install Debian's package chromium")
pytestmark = [
    pytest.mark.sweep,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"make docs needs {', '.join(MISSING)}: make install-all"),
]


def build(target: Path, seed: str) -> subprocess.CompletedProcess[str]:
    """Run what `make docs` runs."""
    command = re.search(r"-m sphinx (.*) \$\(SITE\)", (REPOSITORY / "Makefile").read_text(encoding="utf-8"))
    assert command
    arguments = command[1].replace("$(VENV)/doctrees", str(target / "doctrees")).split()
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *arguments, str(target / "site")],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("docs")
    done = build(target, "0")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return target / "site"


class Page(HTMLParser):
    """The links of a page, what it loads, and the names that links can lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        given = {name: value or "" for name, value in attrs}
        self.names.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link":
            self.loads.append(given.get("href", ""))
        self.loads += [given[name] for name in ("src", "srcset") if name in given]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_the_same_pages_make_the_same_bytes(site: Path, tmp_path: Path) -> None:
    assert build(tmp_path, "1").returncode == 0
    again = tmp_path / "site"
    made = {path.relative_to(site) for path in site.rglob("*") if path.is_file()}
    assert made == {path.relative_to(again) for path in again.rglob("*") if path.is_file()}
    assert [name for name in sorted(made) if (site / name).read_bytes() != (again / name).read_bytes()] == []


def test_every_link_of_the_site_leads_to_a_file_and_a_heading(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme:
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            name = unquote(address.fragment)
            if not target.exists() or (name and target in pages and name not in pages[target].names):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_the_site_loads_nothing_from_elsewhere_and_misses_nothing(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for load in page.loads:
            address = urlsplit(load)
            assert not address.scheme or address.scheme == "data", f"{path.name} loads {load}"
            assert not address.netloc, f"{path.name} loads {load}"
            if address.path and address.scheme != "data":
                assert (path.parent / unquote(address.path)).exists(), f"{path.relative_to(site)}: {load}"


def test_every_page_of_the_documentation_has_an_address(site: Path) -> None:
    docs = REPOSITORY / "docs"
    for page in PAGES:
        if page.is_relative_to(docs):
            name = page.relative_to(docs).with_suffix(".html")
            assert (site / (name.with_name("index.html") if page.stem == "README" else name)).exists(), page


def test_every_public_name_has_an_entry(site: Path) -> None:
    inventory = zlib.decompress((site / "objects.inv").read_bytes().split(b"zlib.\n", 1)[1]).decode()
    described = {line.split()[0] for line in inventory.splitlines()}
    for module in (rmqclient, rmqclient.testing, rmqclient.errors):
        names = {name: {module.__name__, getattr(getattr(module, name), "__module__", "")} for name in module.__all__}
        missing = [name for name, homes in names.items() if not {f"{home}.{name}" for home in homes} & described]
        assert missing == []


def test_the_search_answers_with_addresses(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    found = re.search(r'"docnames":\s*\[(.*?)\]', index) or re.search(r"docnames:\[(.*?)\]", index)
    assert found
    names = [name.strip('" ') for name in found[1].split(",")]
    assert [name for name in names if not (site / f"{name}.html").exists()] == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield launched
        launched.close()


@needs_browser
def test_four_pages_look_like_pages_light_and_dark_on_a_desk_and_on_a_phone(browser: Browser, site: Path) -> None:
    for name, picture in pictures(browser, site):
        shades = sorted(picture.convert("L").resize((64, 64)).tobytes())
        assert shades[-1] - shades[0] > 80, f"{name} is empty"
        is_light = shades[len(shades) // 2] > 128
        assert is_light == name.startswith("light/"), f"{name}: {shades[len(shades) // 2]}"


@needs_browser
def test_pictures_follow_the_theme_that_the_reader_chose(browser: Browser, site: Path) -> None:
    page = browser.new_page(color_scheme="light")
    page.goto((site / "operate" / "dashboard.html").as_uri())
    shown = "document.querySelector('picture img').currentSrc"
    page.wait_for_function(f"{shown}.includes('/light/')")
    page.evaluate("document.body.dataset.theme = 'dark'")
    page.wait_for_function(f"{shown}.includes('/dark/')")
    page.close()
