"""A real browser at a shop under load: four workers, kills, dead letters, live charts, and every page.

Chromium of the system, such as Debian's package ``chromium``; none is downloaded. Every message of a browser's console
fails the test.
"""

from __future__ import annotations

import datetime
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")
pytest.importorskip("uvicorn", reason="rmq dashboard needs uvicorn")
pytest.importorskip("playwright", reason="Playwright drives the browser")

from playwright.sync_api import Browser, Page, expect, sync_playwright

from rmqclient import Message, Producer
from rmqclient.opening import open_backend
from rmqclient.store import open_store
from tests.dashboard.load import HOSTILE_KEY
from tests.dashboard.shop import Shop, end, open_shop
from tests.workers.supervised import COMMAND, eventually

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no browser: install Debian's package chromium"),
]

LONG_MS = 60_000
PAGES = [
    "/",
    "/topics",
    "/topics/orders",
    "/groups",
    "/groups/billing",
    "/messages",
    "/messages?topic=orders",
    "/dead-letters?group=billing",
]
PAGES += [
    "/workers",
    "/schedules",
    "/schedules?tab=retries",
    "/schedules?tab=crons",
    "/transactions",
    "/events",
    "/groups/billing/seek?topic=orders&to=earliest",
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with open_shop(tmp_path_factory.mktemp("shop")) as opened:
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, shop: Shop) -> Iterator[Page]:
    """Yield a page that came in by the token. Any message of its console fails the test that used it."""
    context = browser.new_context(viewport={"width": 1360, "height": 900})
    context.set_default_timeout(LONG_MS)
    expect.set_options(timeout=LONG_MS)
    opened = context.new_page()
    told: list[str] = []
    opened.on("console", lambda message: told.append(f"{message.type}: {message.text}"))
    opened.on("pageerror", lambda error: told.append(f"error: {error}"))
    opened.on("dialog", lambda dialog: told.append(f"dialog: {dialog.message}"))
    opened.goto(shop.address)
    yield opened
    context.close()
    assert told == []


def test_the_token_does_not_stay_in_the_address(page: Page, shop: Shop) -> None:
    assert page.url == f"{shop.base}/"


def test_each_page_is_shown_with_names_and_headers_and_without_a_word_on_the_console(page: Page, shop: Shop) -> None:
    for path in PAGES:
        page.goto(shop.base + path)
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator("#live-text")).to_have_text("Live")
        assert page.locator("th, button, a, input, select").evaluate_all(NAMELESS) == [], path
        assert page.locator("table:not(.u-legend):not(:has(th[scope]))").count() == 0, path


def test_numbers_and_charts_move_under_load(page: Page) -> None:
    published = page.locator('.tile [data-live="published"]')
    expect(published).to_have_text(re.compile(r"[1-9][0-9,]*(\.\d)?"))
    expect(page.locator(".chart canvas")).to_have_count(1)
    expect(page.locator(".spark canvas")).to_have_count(4)
    before = canvas_of(page)
    eventually(lambda: canvas_of(page) != before, "another picture of the chart")


def test_live_updates_pause_and_go_on(page: Page) -> None:
    page.keyboard.press("p")
    expect(page.locator("#live-text")).to_have_text("Paused")
    before = canvas_of(page)
    page.wait_for_timeout(2_500)  # what must not happen is waited for
    assert canvas_of(page) == before
    page.locator("#pause").click()
    expect(page.locator("#live-text")).to_have_text("Live")
    eventually(lambda: canvas_of(page) != before, "another picture of the chart")


def test_a_killed_worker_is_replaced_on_the_page(page: Page, shop: Shop) -> None:
    page.goto(f"{shop.base}/workers")
    expect(page.locator("tbody th")).to_have_count(4)
    pid = int(page.locator("tbody .pid").first.inner_text())
    os.kill(pid, signal.SIGKILL)
    expect(page.locator("tbody .pid", has_text=re.compile(rf"^{pid}$"))).to_have_count(0)
    expect(page.locator("tbody th")).to_have_count(4)


def test_where_a_worker_stands_is_said_and_stays_while_its_numbers_move(page: Page, shop: Shop) -> None:
    where = page.get_by_role("link", name="Where in the code?")

    def is_shown() -> bool:  # a worker that was killed a moment ago may still be in the list
        page.goto(f"{shop.base}/workers")
        page.get_by_role("link", name=re.compile("^worker-")).first.click()
        page.wait_for_load_state()
        return where.count() > 0

    eventually(is_shown, "the page of a worker that lives")
    where.click()
    said = page.locator(".notice.said")
    expect(said).to_contain_text(re.compile(r"^worker-\d (stands in|runs) "))
    before = said.inner_text()
    handled = page.locator(".strip div", has_text="Handled").locator("dd")
    expect(handled).not_to_have_text(handled.inner_text())
    expect(said).to_have_text(before)
    page.locator(".stack summary", has_text="other").click()
    expect(page.locator(".stack h3").first).to_be_visible()


def test_what_changed_at_a_time_of_day_is_meant_by_the_clock_of_the_browser(page: Page, shop: Shop) -> None:
    page.goto(f"{shop.base}/events")
    page.get_by_label("What changed at").fill("14:05")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".notice.said")).to_be_visible()
    assert re.search(r"at=\d{4}-\d\d-\d\dT\d\d%3A05%3A00", page.url)


def test_hostile_bodies_and_keys_stay_text(page: Page, shop: Shop) -> None:
    row = page.locator("table.messages tbody tr").first

    def found() -> bool:
        page.goto(f"{shop.base}/messages?topic=orders&where=body.note&limit=5")
        return row.count() > 0

    eventually(found, "one of the few orders with a note")
    expect(row).to_contain_text("<script>document.title='owned'</script>")
    row.locator("a.place").click()
    expect(page.locator("#body")).to_contain_text("<img src=x onerror=alert(1)>")
    page.get_by_role("link", name=HOSTILE_KEY).click()
    expect(page.get_by_role("link", name=f"key:{HOSTILE_KEY}")).to_be_visible()
    expect(page.locator("table.messages tbody tr").first).to_contain_text(HOSTILE_KEY)
    expect(page).not_to_have_title(re.compile("^owned"))


def test_a_browser_without_the_token_sees_nothing(browser: Browser, shop: Shop) -> None:
    context = browser.new_context()
    page = context.new_page()
    for path in PAGES:
        answer = page.goto(shop.base + path)
        assert answer is not None
        assert answer.status == 401
        assert "billing" not in page.content()
    context.close()


def test_a_page_from_elsewhere_can_change_nothing(page: Page, shop: Shop) -> None:
    page.goto(f"{shop.base}/groups/ledger")
    token = page.locator('meta[name="form-token"]').get_attribute("content")
    stranger = page.context.new_page()
    stranger.set_content(
        f"<form method='post' action='{shop.base}/groups/ledger/pause'>"
        f"<input name='form_token' value='{token}'><button>Win</button></form>"
    )
    acted = shop.log.read_text().count("action pause")
    with stranger.expect_response(re.compile("/pause$")) as answered:
        stranger.get_by_role("button").click()
    assert answered.value.status == 403
    assert shop.log.read_text().count("action pause") == acted


def test_a_search_survives_a_reload_because_it_is_in_the_address(page: Page, shop: Shop) -> None:
    page.goto(f"{shop.base}/messages")
    field = page.get_by_label("Search for")
    field.fill("topic:orders where:body.total > `200`")
    field.press("Enter")
    expect(page.locator("table.messages tbody tr").first).to_be_visible()
    page.reload()
    expect(field).to_have_value("topic:orders where:body.total > `200`")
    expect(page.locator("table.messages tbody tr").first).to_be_visible()


def test_why_an_order_was_not_billed_is_answered_in_words_by_one_search(page: Page, shop: Shop) -> None:
    letters(page, shop)
    keys = page.locator("table.letters tr", has_text="CardDeclined").locator(".keys").first.inner_text()
    order = keys.split()[0]
    page.goto(shop.base)
    field = page.get_by_label("Search the whole store")
    field.fill(order)
    field.press("Enter")
    answer = page.locator(".answers li", has_text="billing")
    expect(answer).to_contain_text(
        f"failed for good after 2 attempts. shop.CardDeclined: card of order {order} was declined"
    )
    expect(answer).to_contain_text("shop.py in bill")


def test_a_dead_letter_shows_its_traceback_and_its_life(page: Page, shop: Shop) -> None:
    letters(page, shop)
    page.locator(".reason summary").first.click()
    expect(page.locator(".frames .own").first).to_contain_text("shop.py")
    page.locator("table.letters a.place").first.click()
    for step in ("born", "stored", "failed", "retry stored", "dead letter"):
        expect(page.locator(".timeline b", has_text=step).first).to_be_visible()


def test_selected_letters_are_replayed_and_the_others_are_not(page: Page, shop: Shop) -> None:
    letters(page, shop)
    expect(page.locator("table.issues").get_by_role("link", name=re.compile("KeyError"))).to_be_visible()
    boxes = page.locator('input[name="letter"]')
    settled = page.locator("table.letters .pill")
    page.goto(f"{shop.base}/dead-letters?group=billing&again=1&limit=500")
    before = settled.count()

    def two_of_a_kind() -> bool:
        page.goto(f"{shop.base}/dead-letters?group=billing&class=KeyError")
        return boxes.count() >= 2

    eventually(two_of_a_kind, "two letters of one reason")
    chosen = [boxes.nth(number).get_attribute("value") for number in range(2)]
    for number in range(2):
        boxes.nth(number).check()
    page.get_by_role("button", name="Replay ticked…").click()
    expect(page.locator("h1")).to_have_text("Replay 2 dead letters of billing?")
    page.get_by_role("button", name="Replay 2").click()
    expect(page.locator("h1")).to_have_text("2 of 2 replayed")
    page.goto(f"{shop.base}/dead-letters?group=billing&again=1&limit=500")
    for name in chosen:
        row = page.locator("tr", has=page.locator(f'input[value="{name}"]'))
        expect(row.locator(".pill")).to_have_text("replayed")
    expect(settled).to_have_count(before + 2)
    assert "action replay group='billing' asked=2 only_group=True" in shop.log.read_text()


def test_the_last_hours_failures_of_one_kind_are_replayed_in_three_clicks(page: Page, shop: Shop) -> None:
    def is_known() -> bool:
        page.goto(f"{shop.base}/dead-letters")
        return page.locator("table.issues tr", has_text="CardDeclined").count() > 0

    eventually(is_known, "a declined card")
    page.goto(shop.base)
    page.get_by_role("navigation").get_by_role("link", name="Dead letters").click()
    issue = page.locator("table.issues tr", has_text="CardDeclined")
    issue.get_by_role("link", name=re.compile("of the last hour…")).click()
    expect(page.locator("h1")).to_have_text(re.compile(r"Replay \d+ dead letters? of billing\?"))
    page.get_by_role("button", name=re.compile(r"Replay \d+")).click()
    expect(page.locator("h1")).to_have_text(re.compile(r"^(\d+) of \1 replayed$"))


def test_one_handler_is_paused_with_a_reason_in_three_clicks_and_the_first_page_says_who_and_how_long(
    page: Page, shop: Shop
) -> None:
    expect(page.locator("#group-ledger")).to_be_visible()
    with counted_clicks(page) as clicks:
        page.locator("#group-ledger a").click()
        page.get_by_text("Pause…", exact=True).click()
        page.get_by_label("Reason").fill("books are closed")
        page.get_by_label("Your name").fill("ada")
        page.get_by_role("button", name="Pause", exact=True).click()
        expect(page.locator(".strip .pill")).to_have_text("paused")
    assert len(clicks) <= 3
    expect(page.locator("#live .notice")).to_contain_text("by ada")
    expect(page.locator("#live .notice")).to_contain_text("books are closed")
    page.goto(f"{shop.base}/")
    expect(page.locator("h1")).to_have_text(re.compile("Behind in [1-3] of 3 groups"))
    expect(page.locator("#said")).to_contain_text(re.compile(r"ledger is paused by ada \(typed\) for .*; \d+ wait"))
    expect(page.locator("#live-marks")).to_contain_text("pause ledger by ada (typed): books are closed")
    page.locator(".needs li", has_text="ledger").get_by_text("Resume…").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    expect(page.locator(".strip .pill")).to_have_text(re.compile("running|idle"))


def test_a_question_is_asked_and_left_by_the_keyboard(page: Page, shop: Shop) -> None:
    page.goto(f"{shop.base}/groups/ledger")
    page.get_by_text("Pause…", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Reason")).to_be_hidden()


def test_what_a_person_has_unfolded_stays_so_while_numbers_move(page: Page, shop: Shop) -> None:
    page.goto(f"{shop.base}/groups/billing")
    fold = page.locator("details.fold")
    fold.locator("summary").click()
    for _ in range(2):
        with page.expect_response(re.compile("/groups/billing$")):
            pass
    expect(fold).to_have_attribute("open", "")


def test_which_group_is_behind_and_when_it_has_drained_stands_on_the_first_page(page: Page, shop: Shop) -> None:
    page.goto(f"{shop.base}/")
    figures = page.locator("#group-billing .four")
    expect(figures).to_contain_text("Drained")
    expect(figures).to_contain_text(re.compile(r"now|in \d+ |never"))
    with counted_clicks(page) as clicks:
        page.locator("#group-billing a").click()
        expect(page.locator(".strip div", has_text="Drained").locator("dd")).to_have_text(
            re.compile(r"now|in \d+ |never")
        )
    assert len(clicks) <= 3
    expect(page.locator(".chart canvas")).to_have_count(4)


def test_how_a_group_kept_up_in_the_last_hour_is_two_clicks_away(page: Page, shop: Shop) -> None:
    with counted_clicks(page) as clicks:
        page.get_by_role("link", name="1 h", exact=True).click()
        page.locator("#group-billing a").click()
        said = page.get_by_label("In the last hour")
        for name, number in {
            "Published": r"[1-9]",
            "Handled": r"[1-9]",
            "Wait p95": r"\d (ms|s|min)",
            "Run p95": r"\d (ms|s|min)",
        }.items():
            expect(said.locator("div", has_text=name).locator("dd")).to_have_text(re.compile(number))
    assert len(clicks) == 2


def test_a_message_is_edited_and_sent_again_in_three_clicks(page: Page, shop: Shop) -> None:
    with open_store(shop.store, housekeeping=False) as store, Producer(store) as producer:
        producer.send(Message("mails", b"thank yuo", keys=("typo",)))
    field = page.get_by_label("Search the whole store")
    with counted_clicks(page) as clicks:
        field.fill("typo")
        field.press("Enter")
        page.locator("table.messages a.place").first.click()
        page.get_by_role("link", name="Edit and send again").click()
        page.get_by_label("Body").fill("thank you")
        page.get_by_role("button", name="Send to mails").click()
        expect(page.locator("#body")).to_contain_text("thank you")
    assert len(clicks) == 3


def test_a_search_by_content_goes_on_by_itself_to_the_end(page: Page, shop: Shop) -> None:
    count = 6_000
    with open_store(shop.store, housekeeping=False) as store, Producer(store) as producer:
        for _ in range(count // 500):
            producer.send_batch([Message("archive", b"{}") for _ in range(500)])
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{shop.base}/search?q=topic:archive where:body.nobody")
    expect(page.locator(".empty")).to_contain_text(f"{count:,} messages were looked at, all that there are.")
    assert any("below=" in url for url in asked), "one page did not look at all of them"


def test_a_range_is_in_the_address_and_its_charts_are_of_the_history(page: Page, shop: Shop) -> None:
    with page.expect_response(re.compile(r"/history\?range=1h")) as answered:
        page.get_by_role("link", name="1 h", exact=True).click()
    assert answered.value.json()["series"]["t"], "the housekeeper has written some records"
    expect(page).to_have_url(re.compile("range=1h"))
    expect(page.locator(".chart canvas")).to_have_count(1)


def test_times_are_those_of_the_browser_with_its_zone(browser: Browser, shop: Shop) -> None:
    context = browser.new_context(timezone_id="Asia/Tokyo")
    page = context.new_page()
    page.goto(shop.address)
    page.goto(f"{shop.base}/messages?topic=orders&limit=1")
    place = page.locator("td time").first
    expect(place.locator("i")).to_have_text(re.compile(r"GMT\+9|JST"), timeout=LONG_MS)
    expect(place.locator("small")).to_contain_text("ago")
    at = datetime.datetime.fromisoformat(str(place.get_attribute("datetime"))).astimezone(ZoneInfo("Asia/Tokyo"))
    assert at.strftime("%H:%M:%S") in place.inner_text()
    context.close()


def test_a_page_of_a_dashboard_that_was_restarted_says_so_and_not_that_others_have_its_place(
    browser: Browser, shop: Shop
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(shop.address)
    context.clear_cookies()  # as a new token makes them worth nothing
    page.reload()
    assert "locked" in page.content()
    page.goto(shop.address)
    expect(page.locator("#live-text")).to_have_text("Live", timeout=LONG_MS)
    page.locator("#pause").click()
    context.clear_cookies()
    page.locator("#pause").click()
    expect(page.locator("#veil")).to_contain_text("was restarted: open its new address", timeout=LONG_MS)
    assert "20 pages" not in page.locator("#live-text").inner_text()
    context.close()


def test_a_page_is_veiled_while_its_dashboard_is_away_and_goes_on_when_it_is_back(
    browser: Browser, tmp_path: Path
) -> None:
    # Given a page of a dashboard with a token that outlives it
    open_store(tmp_path / "store").close()
    (tmp_path / "token").write_text("a token for tests only")
    (tmp_path / "token").chmod(0o600)
    context = browser.new_context()
    page = context.new_page()
    first, address = dashboard_of(tmp_path, "127.0.0.1:0")
    try:
        page.goto(address if "token=" in address else f"{address.rstrip('/')}/?token=a+token+for+tests+only")
        expect(page.locator("#live-text")).to_have_text("Live", timeout=LONG_MS)
        expect(page.locator("#veil")).to_be_hidden()

        # When the dashboard dies, then the page is dimmed, and says since when
        first.kill()
        first.wait()
        expect(page.locator("#veil")).to_contain_text("No connection to the dashboard since", timeout=LONG_MS)
        expect(page.locator("html")).to_have_class(re.compile("stale"))

        # And when it is back at its address, the page goes on by itself
        second, _ = dashboard_of(tmp_path, page.url.removeprefix("http://").partition("/")[0])
        try:
            expect(page.locator("#veil")).to_be_hidden(timeout=LONG_MS)
            expect(page.locator("#live-text")).to_have_text("Live", timeout=LONG_MS)
        finally:
            end(second)
    finally:
        end(first)
        context.close()


def dashboard_of(directory: Path, listen: str) -> tuple[subprocess.Popen[str], str]:
    """Start a dashboard of a directory's store with its token; return it and its address."""
    command = [*COMMAND, "dashboard", str(directory / "store"), "--listen", listen]
    child = subprocess.Popen(
        [*command, "--token-file", str(directory / "token")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def test_rows_are_ordered_by_a_column_and_stay_while_numbers_move(page: Page, shop: Shop) -> None:
    page.goto(f"{shop.base}/groups")
    names = page.locator("tbody th a")
    head = page.get_by_role("columnheader", name="Group")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(names).to_have_text(["billing", "ledger", "shipping"])
    head.get_by_role("button").click()
    expect(names).to_have_text(["shipping", "ledger", "billing"])
    with page.expect_response(re.compile("/groups$")):
        pass
    expect(names).to_have_text(["shipping", "ledger", "billing"])


def test_the_navigation_of_a_telephone_opens_and_has_every_page(page: Page, shop: Shop) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{shop.base}/groups")
    links = page.get_by_role("navigation", name="Pages").get_by_role("link")
    expect(links.first).to_be_hidden()
    head = page.locator(".side").bounding_box()
    assert head is not None
    assert head["height"] < 64
    page.get_by_role("button", name="Pages and search").click()
    for number in range(links.count()):
        box = links.nth(number).bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 390
    page.keyboard.press("Escape")
    expect(links.first).to_be_hidden()
    page.keyboard.press("Control+k")
    expect(page.locator("#search")).to_be_focused()


def test_a_move_is_shown_before_it_is_done(page: Page, shop: Shop) -> None:
    page.goto(f"{shop.base}/groups/shipping")
    page.get_by_role("link", name="Move…").click()
    page.get_by_role("combobox", name="To", exact=True).fill("earliest")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("td .pill").first).to_contain_text("again")
    page.get_by_role("button", name=re.compile("Move 4 queues")).click()
    expect(page.locator(".notice")).to_have_text("4 queues of orders moved to earliest")


def test_light_and_dark_are_chosen_by_a_key_and_kept(page: Page) -> None:
    before = page.evaluate("getComputedStyle(document.body).color")
    page.keyboard.press("t")
    after = page.evaluate("getComputedStyle(document.body).color")
    assert after != before
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).color") == after


def test_the_keyboard_reaches_the_content_past_the_navigation(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_a_narrow_window_shows_every_page_without_scrolling_sideways(page: Page, shop: Shop) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for path in PAGES:
        page.goto(shop.base + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_no_name_breaks_on_a_telephone(page: Page, shop: Shop) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for path in PAGES:
        page.goto(shop.base + path)
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate(BROKEN_WORDS) == [], path


def test_what_a_person_looks_for_is_whole_in_a_window_of_1024(page: Page, shop: Shop) -> None:
    page.set_viewport_size({"width": 1024, "height": 800})
    letters(page, shop)
    for path, name in {"/dead-letters?group=billing": "letters", "/workers": "workers"}.items():
        page.goto(shop.base + path)
        table = page.locator(f".scroll:has(table.{name})")
        assert table.evaluate("each => each.scrollWidth - each.clientWidth") <= 0, path
        assert page.evaluate(BROKEN_WORDS) == [], path


@pytest.mark.parametrize(("scheme", "width"), [("light", 1360), ("dark", 390)])
def test_axe_finds_nothing_to_complain_about(
    browser: Browser, shop: Shop, scheme: Literal["light", "dark"], width: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: make install brings it").Axe()
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(LONG_MS)
    page = context.new_page()
    page.goto(shop.address)
    letters(page, shop)
    paths = [*PAGES, "/search?q=A-7", "/dead-letters/question?what=replay&group=billing&since=1h"]
    paths += [str(page.locator("table.letters a.place").first.get_attribute("href"))]
    wrong = []
    for path in paths:
        page.goto(shop.base + path)
        expect(page.locator("#live-text")).to_have_text("Live")
        found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
        wrong += [f"{path}: {each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]
    context.close()
    assert wrong == []


BROKEN_WORDS = """() => {
  const names = "h1, h2, th, dt, dd, .who, .name, .pill, .tile, .tabs b, .strip, nav a, button, .call span, " +
    "td:not(.body, .reason) a";
  const broken = [];
  for (const place of document.querySelectorAll(names)) {
    const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      if (text.parentElement.closest("code, pre, time, small")) continue;
      for (const word of text.data.matchAll(/[^\\s-]+/g)) {
        const range = document.createRange();
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].filter(each => each.width).map(each => Math.round(each.top)));
        if (lines.size > 1) broken.push(word[0]);
      }
    }
  }
  return broken;
}"""
"""Words of names that stand on two lines."""
NAMELESS = """controls => controls.filter(each => each.type !== "hidden" && !(
    each.getAttribute("aria-label") || each.textContent.trim() || each.placeholder
    || [...(each.labels || [])].map(label => label.textContent.trim()).join("") || each.querySelector("[aria-label]")
)).map(each => each.outerHTML)"""
"""The controls of a page that have no name for who cannot see them."""


@contextmanager
def counted_clicks(page: Page) -> Iterator[list[str]]:
    """Yield what is clicked meanwhile, on any page."""
    clicks: list[str] = []
    page.expose_function("clicked", lambda path: clicks.append(path))  # noqa: PLW0108 - Playwright inspects it
    page.add_init_script("addEventListener('pointerdown', () => clicked(location.pathname), true)")
    page.evaluate("addEventListener('pointerdown', () => clicked(location.pathname), true)")
    yield clicks


def letters(page: Page, shop: Shop) -> None:
    """Open the letters of billing when there are some of each kind."""
    eventually(lambda: count_of_letters(shop) >= 8, "eight dead letters")
    page.goto(f"{shop.base}/dead-letters?group=billing")


def count_of_letters(shop: Shop) -> int:
    with open_store(shop.store, housekeeping=False) as store:
        backend = open_backend(store)
        if "%DLQ%billing" not in backend.topics.names():
            return 0
        return sum(backend.queues.span(queue).max_offset for queue in backend.topics.queues("%DLQ%billing"))


def canvas_of(page: Page) -> str:
    return str(page.locator(".chart canvas").first.evaluate("each => each.toDataURL()"))
