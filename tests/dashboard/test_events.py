"""Events in the browser: a day of deploys, kills, pauses and seeks is told back, and what changed at 14:05."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")
pytest.importorskip("httpx2", reason="Starlette's test client needs httpx2")

from rmqclient import Decision, Message, Producer, TransactionProducer
from rmqclient.admin import Admin
from rmqclient.schedules import waiting
from rmqclient.sending import transactions
from rmqclient.store import open_store
from rmqclient.store.marks import MARKS_FILE, Mark, marks_of, user
from tests.dashboard.visiting import OWN, form_token, text_of, visitor
from tests.support.stores import SMALL
from tests.workers.supervised import Supervised, eventually, rmq

MARKUP = "<script>alert(1)</script>"
SHOP = """\
from rmqclient import App

__version__ = "{}"
app = App()


@app.handler("orders", group="billing")
def bill(message):
    pass
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Producer(tmp_path / "store", config=SMALL) as producer:
        producer.send(Message("orders", b"one"))
    with Admin(tmp_path / "store") as admin:
        admin.seek("billing", "orders", "earliest")
    (tmp_path / "store" / MARKS_FILE).unlink()
    return tmp_path / "store"


def written(store: Path, *marks: Mark) -> None:
    lines = "".join(f"{json.dumps(mark._asdict())}\n" for mark in marks)
    (store / MARKS_FILE).write_text(lines, encoding="utf-8")


def kinds_in(page: str) -> list[str]:
    return re.findall(r'<td><span class="pill \w+">(\w+)</span></td>', page)


@pytest.mark.guarantee("G128")
def test_a_day_is_told_back_in_order_by_the_page_and_by_the_command(tmp_path: Path) -> None:
    # Given two deploys, between which a worker is killed and a group is paused, moved and resumed by several people
    shop = tmp_path / "shop.py"
    shop.write_text(SHOP.format("1.4.1"))
    first = Supervised(tmp_path, "shop:app", "--processes", "1")
    try:
        pid = first.ready(1)[1]
        os.kill(pid, signal.SIGKILL)
        first.replaced(1, pid)
        store = ("--store", str(first.root))
        first.send("one")
        eventually(lambda: "billing" in rmq("group", "ls", *store), "a group that has consumed", first)
        rmq("group", "pause", "billing", "--reason", "the bank is closed", *store)
        with visitor(first.root, allow_actions=True, author_header="X-User") as browser:
            form = {"form_token": form_token(browser)}
            eve = {**OWN, "X-User": "eve"}
            seek = {**form, "topic": "orders", "to": "latest", "queue": ""}
            assert browser.post("/groups/billing/seek", data=seek, headers=eve).status_code == 200
            assert browser.post("/groups/billing/resume", data=form, headers=OWN).status_code == 200
    finally:
        first.process.send_signal(signal.SIGTERM)
        first.exit_code()
        first.end()
    shop.write_text(SHOP.format("1.4.2"))
    second = Supervised(tmp_path, "shop:app", "--processes", "1")
    try:
        second.ready(1)

        # When somebody asks what was done
        with visitor(second.root) as browser:
            page = browser.get("/events").text
        told = json.loads(rmq("events", "-o", "json", *store))
    finally:
        second.end()

    # Then both tell the same, with the authors
    day = ["start", "worker", "pause", "seek", "resume", "stop", "start"]
    assert [each["kind"] for each in told] == day
    assert kinds_in(page) == day[::-1]
    by = {each["kind"]: each["author"] for each in told}
    assert (by["pause"], by["seek"]) == (user(), "eve")
    assert by["resume"].startswith(f"{user()}, browser ")
    assert "shop:app 1.4.1" in told[0]["words"]
    assert "shop:app 1.4.2" in told[-1]["words"]
    said = text_of(page)
    assert said.index("shop:app 1.4.2") < said.index("the bank is closed") < said.index("went wrong")
    assert re.search(r"billing was moved .* eve", said)


def test_what_changed_at_14_05(store: Path) -> None:
    at = time.mktime(time.strptime("2026-03-04 14:05:00", "%Y-%m-%d %H:%M:%S"))
    ago = {"mail": -3_600, "billing": 40, "late": 4_000}
    written(store, *[Mark(round((at + s) * 1000), "pause", name, "ada", "why not", 1) for name, s in ago.items()])
    with visitor(store) as browser:
        around = text_of(browser.get("/events?at=2026-03-04T14:05").text)
        assert "1 event between" in around
        assert "billing was paused why not ada" in around
        assert "mail" not in around
        nothing = text_of(browser.get("/events?at=2026-03-04T14:30").text)
        assert re.search(r"Nothing was done between .* The last before: billing was paused by ada", nothing)
        assert "write 2h" in text_of(browser.get("/events?at=noon").text)


def test_events_are_chosen_by_kind_name_and_range(store: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    old, new = now_ms - 7_200_000, now_ms - 60_000
    written(
        store,
        Mark(old, "pause", "mail", "ada", "", 1),
        Mark(new, "seek", "billing", "eve", "", 1),
        Mark(new, "resume", "mail", "ada", "", 1),
    )
    with visitor(store) as browser:
        for query, kinds in {
            "": ["resume", "seek", "pause"],
            "?kind=seek": ["seek"],
            "?subject=MAI": ["resume", "pause"],
            "?since=1h": ["resume", "seek"],
            "?since=1h&subject=mail&kind=pause": [],
        }.items():
            page = browser.get(f"/events{query}").text
            assert kinds_in(page) == kinds, query
        assert 'href="/groups/billing"' in browser.get("/events").text


def test_pages_go_on_behind_the_last_event_however_many_come_meanwhile(store: Path) -> None:
    marks = [Mark(1_000_000 + number // 3, "pause", f"g{number}", "ada", "", 1) for number in range(250)]
    written(store, *marks[:-20])
    seen: list[str] = []
    with visitor(store) as browser:
        path = "/events"
        while path:
            page = browser.get(path).text
            seen += re.findall(r'href="/groups/(g\d+)"', page.partition("<tbody>")[2])
            written(store, *marks)
            older = re.search(r'href="(\?[^"]*before=[^"]+)">Older', page)
            path = f"/events{older[1]}" if older else ""
        assert browser.get("/events?before=x").status_code == 400
    assert seen == [f"g{number}" for number in range(229, -1, -1)]


def test_words_and_names_of_marks_stay_text(store: Path) -> None:
    written(store, Mark(1_000, "pause", MARKUP, MARKUP, MARKUP, 1), Mark(2_000, "worker", MARKUP, "", MARKUP, 1))
    with visitor(store) as browser:
        page = browser.get("/events").text
    assert MARKUP not in page
    assert page.count("&lt;script&gt;") >= 5


def test_each_action_of_the_dashboard_is_a_mark_with_its_author(store: Path) -> None:
    with Producer(store) as producer:
        delayed = producer.send(Message("orders", b"later"), delay=3_600)
    with TransactionProducer(store, group="shop", check=lambda _: Decision.UNKNOWN) as producer:
        for _ in range(2):
            with producer.transaction(Message("orders", b"x")) as transaction:
                transaction.leave()
    with open_store(store, SMALL) as opened:
        one, two = [each.message.message_id for each in transactions.select(opened)]
    with visitor(store, allow_actions=True, author_header="X-User") as browser:
        form, eve = {"form_token": form_token(browser)}, {**OWN, "X-User": " eve\t"}
        for path, fields in (
            ("/groups/billing/pause", {}),
            ("/schedules/cancel", {"id": delayed.message_id}),
            ("/transactions/decide", {"id": one, "what": "commit"}),
            ("/transactions/decide", {"id": two, "what": "rollback"}),
        ):
            assert browser.post(path, data={**form, **fields}, headers=eve).status_code == 200
    marks = marks_of(store, kinds=("pause", "cancel", "commit", "rollback"))
    assert [(each.kind, each.subject, each.author) for each in marks] == [
        ("pause", "billing", "eve"),
        ("cancel", delayed.message_id, "eve"),
        ("commit", "shop", "eve"),
        ("rollback", "shop", "eve"),
    ]


def test_nobody_is_believed_to_be_another_unless_the_operator_named_the_header(store: Path) -> None:
    with visitor(store, allow_actions=True) as browser:
        form = {"form_token": form_token(browser)}
        browser.post("/groups/billing/pause", data=form, headers={**OWN, "X-User": "eve", "X-Forwarded-User": "eve"})
    (mark,) = marks_of(store, kinds=("pause",))
    assert mark.author.startswith(f"{user()}, browser ")


def test_a_delivery_that_had_ended_already_is_no_event(store: Path) -> None:
    with open_store(store, SMALL) as opened:
        assert not waiting.cancel(opened, "A" * 32)
    assert not marks_of(store, kinds=("cancel",))
