"""The site that `make docs` makes: without a warning, the same each time, offline, its links, search and looks.

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
from urllib.parse import quote, unquote, urlsplit

import pytest

import rmqclient
import rmqclient.errors
import rmqclient.testing
from tests.docs.page import PAGES, REPOSITORY, links_of

pytest.importorskip("playwright", reason="Playwright drives the browser")

from playwright.sync_api import Browser, sync_playwright
from playwright.sync_api import Page as Tab

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


ANSWERS = {
    "docker": "operate/docker",
    "deduplicate": "guide/idempotence",
    "dedupe": "guide/idempotence",
    "idempotent": "guide/idempotence",
    "how to deduplicate messages": "guide/idempotence",
    "autoscaling": "operate/deploy",
    "kubernetes": "operate/deploy",
    "timeout": "guide/retry",
    "time limit": "guide/retry",
    "retry": "guide/retry",
    "backoff": "guide/retry",
    "delay": "guide/timer",
    "countdown": "guide/timer",
    "eta": "guide/timer",
    "cancel": "guide/timer",
    "revoke": "guide/timer",
    "crash": "explain/recovery",
    "concurrency": "guide/handlers",
    "rate limit": "start/faq",
    "priority": "start/faq",
    "chain": "start/faq",
    "workflow": "start/faq",
    "result backend": "start/faq",
    "result": "guide/requests",
    "cron": "guide/cron",
    "periodic": "guide/cron",
    "broker": "migrate/index",
    "gevent": "handling/in-process",
    "upgrade": "operate/upgrade",
    "backup": "operate/backup",
    "restore": "operate/backup",
    "limits": "reference/limits",
    "limits and sizes": "reference/limits",
    "PullConsumer": "reference/reading",
}
"""What a reader types into the search, and the page that has the answer."""


@needs_browser
def test_the_search_ranks_the_page_with_the_answer_first_or_second(browser: Browser, site: Path) -> None:
    tab = browser.new_page()
    tab.set_default_timeout(120_000)
    assert {words: found for words in ANSWERS if ANSWERS[words] not in (found := hits(tab, site, words))} == {}
    tab.close()


def test_the_page_with_each_answer_is_two_clicks_away(site: Path) -> None:
    # One click opens a part of the side bar, one more the page.
    first = (site / "index.html").read_text(encoding="utf-8")
    bar = first[first.index('class="sidebar-tree"') :].partition("</aside>")[0]
    linked = {link.partition(".html")[0] for link in re.findall(r'href="([^"#]+\.html)', bar)}
    assert {page for page in ANSWERS.values() if page not in linked} == set()


def hits(tab: Tab, site: Path, words: str) -> list[str]:
    """Return the pages of the first two answers of the search."""
    tab.goto(f"{(site / 'search.html').as_uri()}?q={quote(words)}")
    tab.locator("#search-results .search-summary", has_text="found").wait_for()  # says so when all answers are listed
    links = tab.locator("ul.search > li > a:first-child").all()[:2]
    return [str(link.get_attribute("href")).partition(".html")[0] for link in links]


@needs_browser
def test_the_side_bar_has_eight_parts_of_which_one_is_open(browser: Browser, site: Path) -> None:
    tab = browser.new_page()
    for name, part in (("index", "Begin here"), ("guide/retry", "Handling messages"), ("spark/reading", "Other")):
        tab.goto((site / f"{name}.html").as_uri())
        assert tab.locator(".sidebar-tree summary").count() == 8
        (opened,) = tab.locator(".sidebar-tree details[open] > summary").all_text_contents()
        assert opened.startswith(part)
        shown = [link for link in tab.locator(".sidebar-tree a").all() if link.is_visible()]
        assert len(shown) < 25
    tab.close()


@needs_browser
def test_axe_finds_nothing_to_complain_about(browser: Browser, site: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: make install brings it").Axe()
    wrong = []
    for scheme in ("light", "dark"):
        tab = browser.new_page(color_scheme=scheme)
        tab.set_default_timeout(120_000)
        for name in ("index", "start/tutorial", "guide/retry", "results/peers", "reference/handling", "search"):
            tab.goto((site / f"{name}.html").as_uri())
            found = axe.run(tab, options={"resultTypes": ["violations"]}).response["violations"]
            wrong += [f"{name}, {scheme}: {each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]
        tab.close()
    assert wrong == []


def test_programs_find_every_page_of_the_index_in_llms_txt(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# rmqclient\n\n> A message queue ")
    lines = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", text, re.MULTILINE)
    assert lines == re.findall(r"^- .*?\(([^)]+\.html)\)", text, re.MULTILINE), "each page has its first sentence"
    assert [address for address in lines if not (site / address).exists()] == []
    index = (REPOSITORY / "docs" / "README.md").read_text(encoding="utf-8")
    guides = {link.replace(".md", ".html") for link in links_of(index) if link.startswith(("guide/", "operate/"))}
    assert guides <= set(lines)
    everything = (site / "llms-full.txt").read_text(encoding="utf-8")
    assert "# Retries and dead letters" in everything
    assert "\n<!-- before" not in everything


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
