"""What waits, on its pages: three tabs with pages by keys, and questions before what cannot be undone."""

from __future__ import annotations

import datetime
import html
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")
pytest.importorskip("httpx2", reason="Starlette's test client needs httpx2")

from starlette.testclient import TestClient

from rmqclient import App, Decision, Message, Producer, TransactionProducer
from rmqclient.dashboard import Dashboard
from rmqclient.failures.retry import copying
from rmqclient.opening import open_backend
from rmqclient.schedules import waiting
from rmqclient.sending import transactions
from rmqclient.steps.journal import PAUSED
from rmqclient.store import MessageQueue, open_store
from tests.dashboard.visiting import HOST, OWN, TOKEN, form_token, text_of, visitor
from tests.support.stores import SMALL

MARKUP = "<script>alert(1)</script>"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Producer(tmp_path / "store", config=SMALL) as producer:
        producer.create_topic("orders", 2)
    return tmp_path / "store"


def delayed(store: Path, *keys: str, topic: str = "orders") -> list[str]:
    with Producer(store) as producer:
        return [
            producer.send(Message(topic, MARKUP.encode(), keys=(key,)), delay=3_600 + number).message_id
            for number, key in enumerate(keys)
        ]


def come_again(store: Path, group: str) -> None:
    """Store messages as a group does: one that failed in a delay level, one in the timer, and one that sleeps."""
    with Producer(store) as producer:
        sent = [producer.send(Message("orders", b"again", keys=(key,))) for key in ("LEVEL", "TIMER", "SLEEP")]
    backend = open_backend(store)
    try:
        sender = copying(backend)
        due_ms = round(time.time() * 1000) + 3_600_000
        for each, wait in zip(sent, ({"delay_level": 18}, {"due_ms": due_ms}, {"due_ms": due_ms}), strict=True):
            message = backend.queues.message_at(each.queue, each.queue_offset)
            properties = dict(message.properties) | ({PAUSED: group} if message.keys[0] == "SLEEP" else {})
            sender.append_copy(message, MessageQueue(f"%RETRY%{group}", 0), properties, reconsume_times=3, **wait)
        sender.close()
    finally:
        backend.close()


def undecided(store: Path, count: int) -> list[str]:
    with TransactionProducer(store, group="shop", check=lambda _: Decision.UNKNOWN) as producer:
        for number in range(count):
            with producer.transaction(Message("orders", b"x", keys=(f"T-{number}",))) as transaction:
                transaction.leave()
    with open_store(store, SMALL) as opened:
        return [each.message.message_id for each in transactions.select(opened)]


def pages(browser: TestClient, path: str, link: str) -> Iterator[str]:
    """Yield a page, and those that its link leads to."""
    base = path.partition("?")[0]
    while path:
        page = browser.get(path).text
        yield page
        found = re.search(rf'href="(\?[^"]+)">{link}<', page)
        path = base + html.unescape(found[1]) if found else ""


def test_pages_of_delayed_messages_go_on_behind_the_last_one_in_the_order_of_their_times(store: Path) -> None:
    keys = [f"K-{number}" for number in range(230)]
    delayed(store, *keys)
    with visitor(store) as browser:
        seen = [re.findall(r">(K-\d+)<", page) for page in pages(browser, "/schedules", "Later")]
    assert [len(each) for each in seen] == [100, 100, 30]
    assert [key for page in seen for key in page] == keys


def test_what_waits_in_a_delay_level_is_shown_and_cannot_be_cancelled(store: Path) -> None:
    with Producer(store) as producer:
        producer.send(Message("orders", b"one", keys=("L",)), delay_level=18)
    with visitor(store, allow_actions=True) as browser:
        page = browser.get("/schedules").text
    assert "level 18, 2h" in text_of(page)
    assert "/schedules/cancel?" not in page


def test_a_failed_message_waits_in_its_own_tab_without_a_way_to_cancel_it(store: Path) -> None:
    delayed(store, "K-1")
    come_again(store, "billing")
    with visitor(store, allow_actions=True) as browser:
        retries, later = browser.get("/schedules?tab=retries").text, browser.get("/schedules").text
        rows = {key: text_of(row) for row in retries.split("<tr>") for key in re.findall("LEVEL|TIMER|SLEEP", row)}
        assert 'href="/groups/billing"' in retries
        assert "/schedules/cancel?" not in retries
        assert ("failed" in rows["LEVEL"], "failed" in rows["TIMER"], "sleeps" in rows["SLEEP"]) == (True, True, True)
        assert " 3 " in rows["TIMER"]
        assert not {"LEVEL", "TIMER", "SLEEP"} & set(re.findall(r"[A-Z]+", later))
        assert "TIMER" not in browser.get("/schedules?tab=retries&topic=mail").text
        assert "TIMER" in browser.get("/schedules?tab=retries&topic=billing").text


def test_a_delivery_is_cancelled_after_a_question_that_shows_the_message(store: Path) -> None:
    (message_id,) = delayed(store, "K-1")
    with visitor(store, allow_actions=True) as browser:
        (link,) = re.findall(r'href="(/schedules/cancel\?[^"]+)"', browser.get("/schedules").text)
        question = browser.get(link).text
        assert "Cancel this delivery?" in text_of(question)
        assert "K-1" in question
        assert MARKUP not in question
        with open_store(store, SMALL) as opened:
            assert len(list(waiting.select(opened))) == 1, "a question cancels nothing"
        form = {"form_token": form_token(browser), "id": message_id}
        assert "was cancelled" in text_of(browser.post("/schedules/cancel", data=form, headers=OWN).text)
        with open_store(store, SMALL) as opened:
            assert not list(waiting.select(opened))

        # A second time is no success
        again = browser.post("/schedules/cancel", data=form, headers=OWN).text
        assert 'class="notice warn"' in again
        assert "Nothing was cancelled" in text_of(again)
        assert "does not wait any more" in text_of(browser.get(link).text)


@pytest.mark.parametrize(("what", "done"), [("commit", "was committed"), ("rollback", "was rolled back")])
def test_a_transaction_is_decided_after_a_question(store: Path, what: str, done: str) -> None:
    (message_id,) = undecided(store, 1)
    with visitor(store, allow_actions=True) as browser:
        link = f"/transactions/decide?id={message_id}&what={what}"
        assert html.escape(link) in browser.get("/transactions").text
        assert "this transaction?" in text_of(browser.get(link).text)
        with open_store(store, SMALL) as opened:
            assert len(transactions.select(opened)) == 1, "a question decides nothing"
        form = {"form_token": form_token(browser), "id": message_id, "what": what}
        assert done in text_of(browser.post("/transactions/decide", data=form, headers=OWN).text)
        assert "decided already" in text_of(browser.get(link).text)
        assert browser.get(f"/transactions/decide?id={message_id}&what=forget").status_code == 400


def test_pages_of_transactions_show_each_once(store: Path) -> None:
    undecided(store, 130)
    with visitor(store) as browser:
        seen = [key for page in pages(browser, "/transactions", "More") for key in re.findall(r">(T-\d+)<", page)]
    assert sorted(seen) == sorted(f"T-{number}" for number in range(130))


def test_a_dashboard_that_only_shows_asks_no_question_that_it_would_not_follow(store: Path) -> None:
    delayed(store, "K-1")
    with visitor(store) as browser:
        assert "/schedules/cancel" not in browser.get("/schedules").text
        assert "<form method" not in browser.get("/schedules/cancel?number=0").text


app = App()


@app.schedule("30 4 * * *", topic="reports", name="nightly")
def nightly() -> str:
    return "done"


@app.schedule(every=3_600, topic="reports", name="hourly")
def hourly() -> None:
    return None


@contextmanager
def with_crons(store: Path) -> Iterator[TestClient]:
    board = Dashboard(store, token=TOKEN, hosts=[HOST], crons=app.crons)
    try:
        browser = TestClient(board, base_url=f"http://{HOST}")
        browser.get("/topics", params={"token": TOKEN})
        yield browser
    finally:
        board.close()


def test_a_schedule_is_shown_with_its_next_time_and_what_became_of_the_last(store: Path) -> None:
    cron = next(each for each in app.crons if each.name == "nightly")
    last = cron.last_tick(datetime.datetime.now(datetime.UTC))
    assert last is not None
    message = cron.message(last)
    assert message is not None
    with Producer(store) as producer:
        sent = producer.send(message)
    with with_crons(store) as browser:
        page = browser.get("/schedules?tab=crons").text
    rows = {name: row for row in page.split("<tr>") for name in re.findall(r'<th scope="row">(\w+)<', row)}
    assert f'href="/messages/reports/{sent.queue.queue_id}/{sent.queue_offset}"' in rows["nightly"]
    assert "no message" in rows["hourly"]
    assert rows["nightly"].count("<time") == 2


def test_without_an_application_the_tab_says_how_to_name_one(store: Path) -> None:
    with visitor(store) as browser:
        assert "--app shop:app" in text_of(browser.get("/schedules?tab=crons").text)
        assert browser.get("/schedules?tab=nope").status_code == 400
        assert browser.get("/schedules?after=nope").status_code == 400


@pytest.mark.parametrize(
    ("now", "last"),
    [
        ("2026-03-04T04:29:59+00:00", "2026-03-03T04:30:00+00:00"),
        ("2026-03-04T04:30:00+00:00", "2026-03-04T04:30:00+00:00"),
    ],
)
def test_the_last_tick_is_the_newest_up_to_now(now: str, last: str) -> None:
    cron = next(each for each in app.crons if each.name == "nightly")
    assert cron.last_tick(datetime.datetime.fromisoformat(now)) == datetime.datetime.fromisoformat(last)


def test_the_last_tick_of_a_leap_day_is_years_ago() -> None:
    leap = App()
    leap.schedule("0 0 29 2 *", topic="reports", name="leap")(hourly)
    now = datetime.datetime(2026, 3, 4, tzinfo=datetime.UTC)
    assert leap.crons[0].last_tick(now) == datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)
