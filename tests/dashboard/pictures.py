"""``python -m tests.dashboard.pictures DIRECTORY``: the pictures of the dashboard's documentation.

Each page is taken at three widths, light and dark, as one sheet. A shop runs for two minutes in DIRECTORY, which is
made and is seen in tracebacks. Meanwhile a group is paused and goes on, one has no members, and
transactions stay undecided. Then an empty store is shown. Sheets are written to ``docs/operate/dashboard``; with
``--whole``, pictures of whole pages for who looks for faults are written to DIRECTORY instead.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from rmqclient import Decision, Message, Producer, TransactionProducer
from rmqclient.admin import Admin
from rmqclient.store import open_store
from tests.dashboard.shop import Shop, end, open_shop
from tests.workers.supervised import COMMAND

PICTURES = Path(__file__).parents[2] / "docs" / "operate" / "dashboard"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = (1440, 1024, 390)
_HEIGHT = 900
_SCALE = 0.5
"""Of a sheet beside what a browser shows."""
_GAP = 16
_PAUSED_S, _AFTERWARDS_S = 60.0, 60.0
_PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "groups": "/groups",
    "group": "/groups/billing",
    "move": "/groups/billing/seek?topic=orders&to=1m",
    "search": "/messages?topic=orders&where=body.total+%3E+%60350%60",
    "dead-letters": "/dead-letters?group=billing",
    "question": "/dead-letters/question?what=replay&group=billing&since=1h",
    "workers": "/workers",
    "schedules": "/schedules",
    "transactions": "/transactions",
    "events": "/events",
}
_CLICKED = {
    "message": ("/dead-letters?group=billing", "table.letters a.place"),
    "worker": ("/workers", "table.workers tbody th a"),
    "replay": ("/dead-letters/question?what=replay&group=billing&since=1h&class=KeyError", "form.question button"),
}
_EMPTY = ("overview", "groups", "dead-letters", "schedules")


class _Taken(NamedTuple):
    """A page as a browser shows it."""

    name: str
    scheme: str
    width: int
    picture: Image.Image


def main(directory: Path, *, whole: bool) -> None:
    """Run the shop, and take the pictures."""
    directory.mkdir(parents=True)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        with open_shop(directory) as shop:
            _disturb(shop)
            _write(_taken(browser, shop.address, whole=whole), directory if whole else PICTURES, whole=whole)
        with _nothing(directory / "empty") as address:
            taken = _taken(browser, address, whole=whole, names=_EMPTY)
            _write(taken, directory / "empty" if whole else PICTURES / "empty", whole=whole)
        browser.close()


@contextmanager
def _nothing(directory: Path) -> Iterator[str]:
    """Yield the address of the dashboard of a store in which nothing was ever stored."""
    directory.mkdir()
    open_store(directory / "store").close()
    command = [*COMMAND, "dashboard", str(directory / "store"), "--listen", "127.0.0.1:0", "--allow-actions"]
    with (directory / "dashboard.log").open("wb") as log:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        try:
            assert child.stdout is not None
            yield child.stdout.readline().strip()
        finally:
            end(child)


def _disturb(shop: Shop) -> None:
    with Producer(shop.store) as producer, Admin(shop.store) as admin:
        producer.create_topic("audit", 4)
        admin.seek("reporting", "audit", "earliest")
        for number in range(25):
            producer.send(Message("audit", b"{}", keys=(f"A-{number}",)))
        with TransactionProducer(shop.store, group="checkout", check=lambda _message: Decision.UNKNOWN) as checkout:
            for number in range(3):
                with checkout.transaction(Message("orders", b'{"order": "A-%d"}' % number)) as transaction:
                    transaction.leave()
            admin.pause("ledger", reason="the bank is down", author="ada")
            time.sleep(_PAUSED_S)
            admin.resume("ledger", author="ada")
            time.sleep(_AFTERWARDS_S)


def _taken(browser: Browser, address: str, *, whole: bool, names: tuple[str, ...] = ()) -> Iterator[_Taken]:
    base = address.partition("/?")[0]
    for scheme in SCHEMES:
        context = browser.new_context(viewport={"width": WIDTHS[0], "height": _HEIGHT}, color_scheme=scheme)
        context.set_default_timeout(120_000)
        page = context.new_page()
        page.goto(address)
        for name in names or (*_PAGES, *_CLICKED):
            if name in _PAGES:
                place = base + _PAGES[name]
            else:  # just before its pictures: a worker may die
                path, clicked = _CLICKED[name]
                page.goto(base + path)
                page.locator(clicked).first.click()
                page.wait_for_url(re.compile(f"^(?!{re.escape(base + path)}$)"))
                place = page.url
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": _HEIGHT})
                page.goto(place)
                yield _Taken(name, scheme, width, _seen(page, whole=whole))
        context.close()


def _seen(page: Page, *, whole: bool) -> Image.Image:
    page.locator("#live-text", has_text="Live").wait_for(state="attached")
    page.wait_for_timeout(800)  # charts and fonts
    return Image.open(io.BytesIO(page.screenshot(full_page=whole))).convert("RGB")


def _write(taken: Iterator[_Taken], directory: Path, *, whole: bool) -> None:
    sheets: dict[str, list[_Taken]] = {}
    for each in taken:
        sheets.setdefault(each.name, []).append(each)
        if whole:
            path = directory / "pictures" / f"{each.name}-{each.scheme}-{each.width}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            each.picture.save(path)
    for name, found in sheets.items():
        if not whole:
            directory.mkdir(parents=True, exist_ok=True)
            _sheet(found).save(directory / f"{name}.webp", quality=72, method=6)
            if directory == PICTURES and name == "overview":  # of the README, in the colours of its reader
                for each in (each for each in found if each.width == WIDTHS[0]):
                    path = directory / each.scheme / "overview.webp"
                    path.parent.mkdir(exist_ok=True)
                    each.picture.save(path, quality=72, method=6)


def _sheet(found: list[_Taken]) -> Image.Image:
    """Return all pictures of a page as one: a row for each scheme."""
    size = (sum(WIDTHS) + _GAP * (len(WIDTHS) + 1), (_HEIGHT + _GAP) * len(SCHEMES) + _GAP)
    sheet = Image.new("RGB", size, "#7a8194")
    for each in found:
        x = _GAP + sum(width + _GAP for width in WIDTHS[: WIDTHS.index(each.width)])
        sheet.paste(each.picture, (x, _GAP + SCHEMES.index(each.scheme) * (_HEIGHT + _GAP)))
    return sheet.resize((int(size[0] * _SCALE), int(size[1] * _SCALE)), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), whole="--whole" in sys.argv[2:])
