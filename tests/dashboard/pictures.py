"""``python -m tests.dashboard.pictures DIRECTORY``: the pictures of the dashboard's documentation, light and dark.

A shop runs for two minutes in DIRECTORY, which is made and is seen in tracebacks. Meanwhile a group is paused and goes
on, one has no members, transactions stay undecided. Pictures are written to ``docs/operate/dashboard``.
"""

from __future__ import annotations

import io
import shutil
import sys
import time
import urllib.request
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from rmqclient import Decision, Message, Producer, TransactionProducer
from rmqclient.admin import Admin
from tests.dashboard.shop import Shop, open_shop

PICTURES = Path(__file__).parents[2] / "docs" / "operate" / "dashboard"
_SIZE = {"width": 1280, "height": 800}
_TELEPHONE = {"width": 390, "height": 780}
_PAUSED_S, _AFTERWARDS_S = 60.0, 60.0
_PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "groups": "/groups",
    "group": "/groups/billing",
    "move": "/groups/billing/seek?topic=orders&to=1m",
    "messages": "/messages?topic=orders&where=body.total+%3E+%60350%60",
    "dead-letters": "/dead-letters?group=billing",
    "workers": "/workers",
    "schedules": "/schedules",
    "transactions": "/transactions",
}


def main(directory: Path) -> None:
    """Run the shop, and take the pictures."""
    directory.mkdir(parents=True)
    with open_shop(directory) as shop, sync_playwright() as playwright:
        _begin_charts(shop)
        _disturb(shop)
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        for scheme in ("light", "dark"):
            _take(browser, shop, scheme)
        browser.close()


def _begin_charts(shop: Shop) -> None:
    request = urllib.request.Request(f"{shop.base}/history", headers={"Authorization": f"Bearer {shop.token}"})
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


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
            admin.pause("ledger")
            time.sleep(_PAUSED_S)
            admin.resume("ledger")
            time.sleep(_AFTERWARDS_S)


def _take(browser: Browser, shop: Shop, scheme: str) -> None:
    context = browser.new_context(viewport=_SIZE, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(shop.address)
    for name, path in _PAGES.items():
        page.goto(shop.base + path)
        if name == "dead-letters":
            page.locator(".reason summary").nth(1).click()
        _save(page, f"{scheme}/{name}")
    page.goto(f"{shop.base}/dead-letters?group=billing")
    page.locator("table.letters a.place").first.click()
    page.locator(".timeline summary").first.click()
    _save(page, f"{scheme}/message")
    page.goto(f"{shop.base}/workers")
    page.locator("tbody th a").first.click()
    _save(page, f"worker/{scheme}")
    page.set_viewport_size(_TELEPHONE)  # type: ignore[arg-type]
    page.goto(shop.base)
    _save(page, f"telephone/{scheme}")
    context.close()


def _save(page: Page, name: str) -> None:
    page.locator("#live-text", has_text="Live").wait_for()
    page.wait_for_timeout(1_500)  # charts and fonts
    path = PICTURES / f"{name}.webp"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(path, quality=80, method=6)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
