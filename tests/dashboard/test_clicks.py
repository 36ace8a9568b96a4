"""From the first page to the answer in words, in three clicks: what hangs, which schedule is late, where steps stand.

A real browser at a shop in which all of that is so at once. Its clock runs 30 times faster than the host's, as a
schedule is overdue after a minute; its dashboard says after two seconds that a handler hangs.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")
pytest.importorskip("uvicorn", reason="rmq dashboard needs uvicorn")
pytest.importorskip("playwright", reason="Playwright drives the browser")

from playwright.sync_api import Browser, Page, expect

from rmqclient.store import clock
from tests.dashboard.shop import end
from tests.dashboard.test_browser import CHROMIUM, LONG_MS, browser, counted_clicks
from tests.workers.supervised import COMMAND, REPOSITORY, environment, eventually

__all__ = ["browser"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no browser: install Debian's package chromium"),
]
IMPATIENT = (
    "import rmqclient.store.observe.states as states; states.HUNG_AFTER_S = 2.0; "
    "from rmqclient.workers.entry import main; main()"
)
"""The command ``rmq``, for which a handler hangs after two seconds."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of the dashboard, with its token, when everything stands still."""
    directory = tmp_path_factory.mktemp("stuck")
    shutil.copy(Path(__file__).parent / "apps" / "stuck.py", directory)
    (directory / "store").mkdir()
    clock.make(directory / "store", factor=30)
    store, logged = ("--store", "store"), directory / "log"
    with contextlib.ExitStack() as children, logged.open("wb") as log:

        def start(*command: str) -> subprocess.Popen[str]:
            child = subprocess.Popen(
                command,
                cwd=directory,
                env=environment(PYTHONPATH=str(REPOSITORY)),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            children.callback(end, child)
            return child

        start(*COMMAND, "run", "stuck:app", "--processes", "1", "--shutdown-timeout", "1s", *store)
        eventually(lambda: "ready" in logged.read_text(), "a ready worker")
        for topic, key in (("pictures", "cat"), ("payouts", "A-17"), ("holidays", "ada")):
            assert start(*COMMAND, "send", topic, key, "--key", key, *store).wait() == 0
        shown = start(sys.executable, "-c", IMPATIENT, "dashboard", *store, "--app", "stuck:app", "--listen", "[::1]:0")
        assert shown.stdout is not None
        yield shown.stdout.readline().strip()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(LONG_MS)
    expect.set_options(timeout=LONG_MS)
    opened = context.new_page()
    opened.goto(address)
    yield opened
    context.close()


def test_which_message_hangs_in_which_worker_since_when_and_where_in_the_code(page: Page) -> None:
    # The first page alone says the worker, the message and the time
    expect(page.locator("#said")).to_contain_text(re.compile(r"thumbnails is hung in worker-1 \(\d+ (s|min)\)\."))
    need = page.locator(".needs li", has_text="thumbnails")
    expect(need).to_contain_text(re.compile(r"Hung \d+ s in pictures \d:0\."))

    with counted_clicks(page) as clicks:
        need.get_by_role("link", name="See where it hangs").click()
        expect(page.locator(".call")).to_contain_text(re.compile(r"pictures \d:0 of thumbnails, \d+"))
        page.get_by_role("link", name="Where in the code?").click()
        said = r"worker-1 stands in stuck.py:\d+ \(never_return\) for .* with message pictures/\d/0 of group thumbnails"
        expect(page.locator(".notice.said")).to_have_text(re.compile(said))
    assert len(clicks) == 2


def test_which_schedule_is_overdue_and_where_its_function_hangs(page: Page) -> None:
    need = page.locator(".needs li", has_text="Schedules")
    expect(need).to_contain_text(re.compile(r"A schedule of worker \d+ is overdue"))

    with counted_clicks(page) as clicks:
        need.get_by_role("link", name="See the schedules").click()
        expect(page.locator(".notice.bad")).to_contain_text("A schedule of worker-1 is overdue: its function fails")
        for name in ("invoice", "write"):
            row = page.get_by_role("row", name=re.compile(f"^{name} "))
            expect(row).to_contain_text("no message its function fails or hangs, or made none")
        expect(page.get_by_role("row", name=re.compile("^report "))).to_contain_text("sent as reports")
        page.get_by_role("link", name="Where in the code?").click()
        stack = page.locator(".stack", has_text="thread in your code of a schedule")
        expect(stack.locator("li", has_text=re.compile(r"stuck\.py:\d+ in write"))).to_be_visible()
    assert len(clicks) == 2


def test_which_step_of_a_message_failed_and_when_it_is_tried_again(page: Page) -> None:
    expect(page.locator("#said")).to_contain_text("Failed messages: 1 wait for a retry, all in bank.")
    with counted_clicks(page) as clicks:
        page.locator("#group-bank a").click()
        page.locator(".strip div", has_text="Waiting for a retry").get_by_role("link", name="1").click()
        expect(page.locator("table.waits tbody tr")).to_have_count(1)
        page.locator("table.waits").get_by_role("link", name="A-17").click()
        answer = page.locator(".fate .said", has_text="bank")
        expect(answer).to_contain_text("failed in 1 attempt and tries again. stuck.BankDown: no answer for 30 s, in ")
        expect(answer).to_contain_text("stuck.py in transfer. Its last finished step is reserve.")
        expect(answer.locator("time")).to_be_visible()
    assert len(clicks) == 3


def test_for_what_a_step_that_stands_still_waits_and_until_when(page: Page) -> None:
    with counted_clicks(page) as clicks:
        page.get_by_role("navigation", name="Pages").get_by_role("link", name="Schedules").click()
        page.get_by_role("link", name="Retries and sleeps").click()
        row = page.locator("table.waits tr", has_text="approvals")
        expect(row).to_contain_text("waits for approved")
        row.get_by_role("link", name="ada").click()
        answer = page.locator(".fate .said", has_text="approvals")
        expect(answer).to_contain_text("waits for the signal approved behind its step note, at most until")
        expect(answer.locator("time")).to_be_visible()
    assert len(clicks) == 3
