"""The pages over a real store: what they show, that everything in it stays text, and what actions do."""

from __future__ import annotations

import base64
import html
import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")
pytest.importorskip("httpx2", reason="Starlette's test client needs httpx2")

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from rmqclient import Message, Producer, PullConsumer, duration
from rmqclient.admin import Admin
from rmqclient.dashboard import dashboard
from rmqclient.dashboard.desk.live import Live
from rmqclient.dashboard.looking.query import Query
from rmqclient.dashboard.looking.search import Search, search
from rmqclient.failures import dead_letters
from rmqclient.failures.failure import Failure, with_failures
from rmqclient.failures.retry import copying
from rmqclient.message import SendResult
from rmqclient.metrics import marks_of
from rmqclient.opening import open_backend
from rmqclient.schedules import waiting as waiting_messages
from rmqclient.sending import transactions
from rmqclient.store import MessageQueue, open_store
from rmqclient.store.errors import StoreBusy
from rmqclient.store.history.recorder import Recorder
from rmqclient.store.observe.records import Records
from tests.dashboard.visiting import OWN, form_token, text_of, visitor
from tests.support.stores import SMALL
from tests.workers.commands.test_cli import run
from tests.workers.supervised import eventually

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'{{7*7}} hx-get=/x"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with Producer(root, config=SMALL) as producer:
        for number in range(12):
            body = json.dumps({"number": number, "note": HOSTILE}).encode()
            producer.send(Message("orders", body, tags="paid", keys=(f"key-{number}",)), sharding_key="one")
    return root


@pytest.fixture
def sent(tmp_path: Path) -> Iterator[SendResult]:
    with Producer(tmp_path / "store", config=SMALL) as producer:
        yield producer.send(Message("orders", HOSTILE.encode(), keys=("<b>key</b>",), properties={"p": HOSTILE}))


def page(browser: TestClient, path: str) -> str:
    answer = browser.get(path)
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def test_every_page_of_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    open_store(tmp_path / "store", SMALL).close()
    with visitor(tmp_path / "store") as browser:
        for path in (
            "/",
            "/topics",
            "/groups",
            "/messages",
            "/dead-letters",
            "/workers",
            "/schedules",
            "/transactions",
        ):
            assert re.search(r"No |Nothing|Every|Search everywhere", text_of(page(browser, path))), path


def test_hostile_bodies_keys_and_properties_stay_text(store: Path, sent: SendResult) -> None:
    place = f"/messages/orders/{sent.queue.queue_id}/{sent.queue_offset}"
    with visitor(store) as browser:
        for path in ("/topics/orders", "/messages?topic=orders", place, f"/messages?topic=orders&key={HOSTILE}"):
            shown = page(browser, path)
            assert "<script>alert" not in shown, path
            assert "<img src=x" not in shown, path
            assert "{{7*7}}" in shown or "49" not in text_of(shown).split(), path
        assert HOSTILE in text_of(page(browser, place).replace("&#34;", '"')) or "alert(1)" in page(browser, place)


def test_a_search_finds_by_key_id_place_time_and_content(store: Path, sent: SendResult) -> None:
    queries = {
        "topic=orders&key=key-7": 1,
        f"id={sent.message_id}": 1,
        f"topic=orders&place={sent.queue.queue_id}:{sent.queue_offset}": 1,
        "topic=orders&where=body.number %3E= `10`": 2,
        "topic=orders&where=contains(keys, 'key-3')": 1,
        "topic=orders&since=1h&limit=5": 5,
        "topic=orders&until=2001-01-01": 0,
        "topic=orders&where=body.number.x": 0,
        "q=topic:orders key:key-7": 1,
        "q=key-7": 1,
        "q=key-7 topic:letters": 0,
        f"q={sent.message_id}": 1,
        "q=tag:paid since:1h limit:3": 0,
        "q=tag:paid since:1h": 12,
        "q=where:body.number %3E= `10`": 2,
    }
    with Producer(store) as producer:
        producer.send(Message("letters", b"", keys=("other",)))
    with visitor(store) as browser:
        for query, count in queries.items():
            shown = page(browser, f"/messages?{query}")
            (table,) = re.findall(r"<tbody>.*</tbody>", shown, re.DOTALL) or [""]
            assert table.count('class="place"') == count, query


def test_a_search_goes_on_where_the_page_ended_until_all_were_seen(store: Path) -> None:
    with Producer(store) as producer:
        for _ in range(40):  # of one key, many of them in one ms
            producer.send(Message("letters", b"", keys=("twice",)))
    with visitor(store) as browser:
        for query, count in {"topic:orders": 12, "twice": 40, "since:1h": 52, "topic:orders tag:paid": 12}.items():
            seen, path = list[str](), f"/search?q={quote(query)}&limit=3"
            while path:
                shown = page(browser, path)
                table = "".join(re.findall(r"<tbody>.*</tbody>", shown, re.DOTALL))
                seen += re.findall(r'class="place" href="([^"]+)"', table)
                found = re.search(r'href="(/search[^"]+)" rel="next"', shown)
                path = f"{html.unescape(found[1])}&limit=3" if found else ""
            assert len(seen) == len(set(seen)) == count, query


def test_a_search_that_looked_far_says_how_far_and_goes_on(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqclient.dashboard.pages.search.SLICE_S", 0.0)
    with visitor(store) as browser:
        shown = page(browser, "/search?q=topic:orders where:body.number == `0`")
        for looked_at in range(1, 12):
            assert f"{looked_at} were looked at, back to" in text_of(shown)
            (path,) = re.findall(r'href="(/search[^"]+)" rel="next"', shown)
            shown = page(browser, html.unescape(path))
        assert 'rel="next"' not in shown
        assert "12 looked at" in text_of(shown)
        assert "1 message" in text_of(shown)


@pytest.mark.parametrize("key", ["plain", "with space", 'qu"ote', "back\\slash", "key:value", "where:", "topic:orders"])
def test_a_query_is_read_as_it_was_written(key: str) -> None:
    query = Query({"key": key, "where": "body.a == 'x'  && b"}, (key, "word"))
    assert Query.of(str(query)) == query


def test_plain_words_find_groups_topics_and_exceptions(store: Path) -> None:
    consume(store, 1)
    give_up(store, 2)
    with visitor(store) as browser:
        told = text_of(page(browser, "/search?q=bill"))
        assert "group billing" in told
        assert "topic orders" in text_of(page(browser, "/search?q=ORDER"))
        found = page(browser, "/search?q=valueerror")
        assert 'href="/dead-letters?group=billing&amp;class=ValueError' in found
        assert "ValueError" in text_of(page(browser, "/search?q=error:Value group:billing since:1h"))
        assert "Nothing was found" in text_of(page(browser, "/search?q=error:Value group:other"))


def test_what_became_of_a_key_is_said_in_words_for_each_group(store: Path) -> None:
    consume(store, 1)
    give_up(store, 1)
    with visitor(store) as browser:
        said = text_of(page(browser, "/search?q=key-0"))
        assert "billing failed for good after 1 attempt. ValueError: number 0" in said
        assert "It is a dead letter" in said
        assert "billing has not handled it: not passed" in text_of(page(browser, "/search?q=key-5"))
        assert "billing" not in text_of(
            page(browser, "/search?q=key-5 group:other").partition('aria-label="What became')[2]
        )


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("topic=orders&where=body.[", "not JMESPath"),
        ("topic=orders&place=7", "write queue:offset"),
        ("topic=orders&since=yesterday", "write 2h"),
        (f"topic=orders&since={'9' * 400}d", "write 2h"),
        ("topic=orders&since=9999999999999d", "write 2h"),
        ("topic=orders&limit=501", "1 to 500"),
        ("topic=nosuch", "nosuch"),
    ],
)
def test_a_wrong_filter_is_told_beside_the_form_that_keeps_it(store: Path, query: str, told: str) -> None:
    with visitor(store) as browser:
        assert told in text_of(page(browser, f"/messages?{query}"))


@pytest.mark.parametrize("to", ["9" * 400 + "d", "9999999999999d", "10000000d", "0001-01-01T00:00"])
def test_a_time_outside_the_calendar_moves_no_group(store: Path, to: str) -> None:
    consume(store, 12)
    with visitor(store, allow_actions=True) as browser:
        assert "write 2h" in text_of(page(browser, f"/groups/billing/seek?topic=orders&to={to}"))
        posted = {"form_token": form_token(browser), "topic": "orders", "to": to, "queue": ""}
        assert browser.post("/groups/billing/seek", data=posted, headers=OWN).status_code == 400


def test_what_was_found_is_saved_as_json_lines(store: Path) -> None:
    with visitor(store) as browser:
        lines = page(browser, "/messages?topic=orders&format=jsonl&limit=3").splitlines()
    assert [json.loads(json.loads(line)["body"])["number"] for line in lines] == [11, 10, 9]


def test_what_was_saved_is_sent_again_as_it_was(store: Path) -> None:
    bodies = [b"hello", b"\xff", b"null", b'"quoted"', b'{"a": 1.0}', b""]
    with Producer(store) as producer:
        for body in bodies:
            producer.send(Message("letters", body, tags="t", keys=("k",), properties={"p": "v"}), sharding_key="one")
    with visitor(store) as browser:
        saved = page(browser, "/messages?topic=letters&format=jsonl").encode()
    assert run("send", "again", "--jsonl", "-", "--store", str(store), stdin=saved).exit_code == 0
    backend = open_backend(store)
    try:
        found = search(backend, Search(topic="again")).messages
    finally:
        backend.close()
    assert [bytes(each.body) for each in found] == bodies
    assert {(each.tags, each.keys, each.sharding_key, each.properties["p"]) for each in found} == {
        ("t", ("k",), "one", "v")
    }


@pytest.mark.parametrize("path", ["/topics/nosuch", "/groups/nosuch", "/nosuch", "/messages/nosuch/0/0"])
def test_what_is_not_there_is_told(store: Path, path: str) -> None:
    with visitor(store) as browser:
        assert browser.get(path).status_code == 404


def test_a_group_is_paused_and_resumed_and_each_action_is_a_line_of_the_log(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rmqclient.dashboard")
    consume(store, 2)
    with visitor(store, allow_actions=True) as browser:
        token = {"form_token": form_token(browser)}
        assert "2 queues" not in page(browser, "/groups/billing")
        browser.post("/groups/billing/pause", data=token, headers=OWN)
        with Admin(store) as admin:
            assert {each.state for each in admin.lag("billing")} == {"paused"}
        assert "paused" in text_of(page(browser, "/groups"))
        browser.post("/groups/billing/resume", data=token, headers=OWN)
        with Admin(store) as admin:
            assert "paused" not in {each.state for each in admin.lag("billing")}
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("action")]
    assert [line.split()[1] for line in lines] == ["pause", "resume"]
    assert all("group='billing'" in line and "by browser" in line for line in lines)


def test_a_group_is_moved_to_where_the_preview_said(store: Path) -> None:
    consume(store, 12)
    with visitor(store, allow_actions=True) as browser:
        preview = text_of(page(browser, "/groups/billing/seek?topic=orders&to=earliest"))
        assert "12 again" in preview
        with Admin(store) as admin:
            assert sum(each.lag for each in admin.lag("billing")) == 0, "a preview moves nothing"
        posted = {"form_token": form_token(browser), "topic": "orders", "to": "earliest", "queue": ""}
        assert browser.post("/groups/billing/seek", data=posted, headers=OWN).status_code == 200
    with Admin(store) as admin:
        assert sum(each.lag for each in admin.lag("billing")) == 12


def test_a_group_is_moved_to_the_time_of_the_preview_however_late_it_is_confirmed(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a preview that goes back by an hour
    consume(store, 12)
    with visitor(store, allow_actions=True) as browser:
        preview = page(browser, "/groups/billing/seek?topic=orders&to=1h")
        assert "12 again" in text_of(preview)

        # When somebody confirms it two hours later
        later = time.time() + 7_200
        monkeypatch.setattr(duration, "time", SimpleNamespace(time=lambda: later))
        posted = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', preview))
        assert browser.post("/groups/billing/seek", data=posted, headers=OWN).status_code == 200

    # Then the group is where the preview said
    with Admin(store) as admin:
        assert sum(each.lag for each in admin.lag("billing")) == 12


@pytest.mark.parametrize(
    ("path", "form", "action"),
    [
        ("/groups/billing/seek", {"topic": "orders", "to": "earliest"}, "seek"),
        ("/groups/billing/pause", {}, "pause"),
        ("/schedules/cancel", {"id": "A"}, "cancel"),
        ("/transactions/decide", {"id": "A", "what": "commit"}, "commit"),
    ],
)
def test_an_action_that_fails_half_way_is_a_line_of_the_log_too(
    store: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    form: dict[str, str],
    action: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreBusy("queue 3 is held")

    caplog.set_level(logging.INFO, "rmqclient.dashboard")
    for owner, name in ((Admin, "seek"), (Admin, "pause"), (waiting_messages, "cancel"), (transactions, "decide")):
        monkeypatch.setattr(owner, name, fail)
    monkeypatch.setattr(transactions, "select", lambda *_, **__: [SimpleNamespace(group="shop")])
    with visitor(store, allow_actions=True) as browser:
        answer = browser.post(path, data={"form_token": form_token(browser), **form}, headers=OWN)
    assert answer.status_code == 503
    (line,) = (each.getMessage() for each in caplog.records if each.getMessage().startswith("action"))
    assert line.startswith(f"action {action} ")
    assert "error='queue 3 is held'" in line


def test_a_group_with_many_queues_is_shown_by_few_reads(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Producer(store) as producer:
        producer.create_topic("wide", 200)
        for _ in range(200):
            producer.send(Message("wide", b"one"))
    with Admin(store) as admin:
        admin.seek("billing", "wide", "earliest")
    read: list[object] = []
    stored_ms = Records.stored_ms

    def counted(records: Records, queue: MessageQueue, queue_offset: int) -> int | None:
        read.append(queue)
        return stored_ms(records, queue, queue_offset)

    monkeypatch.setattr(Records, "stored_ms", counted)
    monkeypatch.setattr(Live, "begin", lambda _live: None)
    with visitor(store) as browser:
        assert "billing" in page(browser, "/groups")
        assert 0 < len(read) <= 64
        read.clear()
        assert "wide" in page(browser, "/groups/billing")
        assert 0 < len(read) <= 64


def test_only_the_ticked_dead_letters_are_replayed_and_dropped(store: Path) -> None:
    give_up(store, 3)
    with visitor(store, allow_actions=True) as browser:
        shown = page(browser, "/dead-letters?group=billing")
        names = re.findall(r'name="letter" value="([^"]+)"', shown)
        assert len(names) == 3
        assert "ValueError" in shown
        form = {"form_token": form_token(browser), "group": "billing", "what": "replay", "letter": names[:2]}
        asked = browser.post("/dead-letters/ticked", data=form, headers=OWN)
        assert "Replay 2 dead letters of billing?" in text_of(asked.text)
        assert waiting(store) == 3, "a question sends nothing"
        done = ended(browser, browser.post("/dead-letters/start", data=form | {"count": "2", "back": ""}, headers=OWN))
        assert "2 of 2 replayed" in done
        assert waiting(store) == 1
        form |= {"what": "drop", "letter": names[2:], "count": "1"}
        assert "1 of 1 dropped" in ended(browser, browser.post("/dead-letters/start", data=form, headers=OWN))
    assert waiting(store) == 0


@pytest.mark.guarantee("G22")
def test_all_that_match_are_replayed_to_the_group_alone_and_marked_with_who_asked(store: Path) -> None:
    consume(store, 12)
    give_up(store, 12)
    with visitor(store, allow_actions=True) as browser:
        query = "what=replay&group=billing&class=ValueError&since=1h&back=group%3Dbilling%26since%3D1h"
        asked = page(browser, f"/dead-letters/question?{query}")
        assert "Replay 12 dead letters of billing?" in text_of(asked)
        assert "only billing" in text_of(asked)
        done = browser.post("/dead-letters/start", data=fields_of(asked) | {"to": "group"}, headers=OWN)
        assert "12 of 12 replayed" in ended(browser, done)
        assert 'href="/dead-letters?group=billing&amp;since=1h"' in done.text, "the link back keeps the filters"
    backend = open_backend(store)
    try:
        assert backend.queues.span(MessageQueue("%RETRY%billing", 0)) == (0, 12)
        assert sum(backend.queues.span(each).max_offset for each in backend.topics.queues("orders")) == 12
    finally:
        backend.close()
    (mark,) = marks_of(store, kinds=["replay"])
    assert mark.subject == "billing"
    assert "browser" in mark.author


def test_a_replay_goes_to_the_topic_where_the_group_takes_nothing_from_a_retry_topic(store: Path) -> None:
    give_up(store, 2)
    with visitor(store, allow_actions=True) as browser:
        asked = page(browser, "/dead-letters/question?what=replay&group=billing&class=ValueError")
        assert "Every group of orders" in text_of(asked)
        done = browser.post("/dead-letters/start", data=fields_of(asked) | {"to": "group"}, headers=OWN)
        assert "2 of 2 replayed" in ended(browser, done)
    backend = open_backend(store)
    try:
        assert "%RETRY%billing" not in backend.topics.names()
        assert sum(backend.queues.span(each).max_offset for each in backend.topics.queues("orders")) == 14
    finally:
        backend.close()


def test_a_job_has_a_rate_and_its_rest_is_cancelled(store: Path) -> None:
    consume(store, 12)
    give_up(store, 12)
    with visitor(store, allow_actions=True) as browser:
        asked = page(browser, "/dead-letters/question?what=drop&group=billing&class=ValueError")
        job = browser.post("/dead-letters/start", data=fields_of(asked) | {"rate": "1"}, headers=OWN)
        assert "Cancel the rest" in job.text
        refused = browser.post("/dead-letters/start", data=fields_of(asked), headers=OWN)
        assert refused.status_code == 400
        assert "job 1 is at work" in text_of(refused.text)
        cancelled = browser.post(f"{job.url.path}/cancel", data={"form_token": form_token(browser)}, headers=OWN)
        assert "wait as before" in ended(browser, cancelled)
    assert 9 <= waiting(store) <= 11


def test_a_question_asks_of_no_more_than_were_there(store: Path) -> None:
    consume(store, 12)
    give_up(store, 2)
    with visitor(store, allow_actions=True) as browser:
        asked = page(browser, "/dead-letters/question?what=drop&group=billing&class=ValueError")
        time.sleep(0.01)  # the next one fails in a later millisecond
        give_up(store, 1)
        done = browser.post("/dead-letters/start", data=fields_of(asked), headers=OWN)
        assert "2 of 2 dropped" in ended(browser, done)
    assert waiting(store) == 1


def test_dead_letters_are_chosen_by_issue_and_text(store: Path) -> None:
    give_up(store, 3)
    with visitor(store) as browser:
        for query, count in {
            "": 3,
            "&class=ValueError": 3,
            "&class=KeyError": 0,
            "&error=number 1": 1,
            "&key=x": 0,
            "&limit=2": 2,
        }.items():
            shown = page(browser, f"/dead-letters?group=billing{query}")
            assert shown.count('class="place"') == count, query


def test_the_life_of_a_message_is_told_from_its_dead_letter_too(store: Path) -> None:
    give_up(store, 1)
    with visitor(store) as browser:
        told = text_of(page(browser, "/messages/%25DLQ%25billing/0/0"))
    for step in ("born", "stored", "failed", "attempt 1: ValueError: number 0", "dead letter", "Traceback"):
        assert step in told, step


@pytest.mark.guarantee("G123")
@pytest.mark.parametrize("body", ["a\u200db\x00c\ufeff", '{"n": 1e2, "n": 2}', "\r\n two"])
def test_what_is_copied_is_the_body_as_it_is(store: Path, body: str) -> None:
    with Producer(store) as producer:
        sent = producer.send(Message("orders", body.encode()), sharding_key="one")
    with visitor(store) as browser:
        shown = page(browser, f"/messages/orders/{sent.queue.queue_id}/{sent.queue_offset}")
    (copied,) = re.findall(r'data-copy="([^"]*)" data-form="base64"', shown)
    assert base64.b64decode(copied).decode() == body


def test_nobody_sees_a_body_that_cannot_be_opened_as_another(store: Path) -> None:
    with Producer(store) as producer:
        sent = producer.send(Message("orders", b"\xff\xfe\x00binary", keys=("bin",)), sharding_key="one")
    with visitor(store) as browser:
        assert "ff fe 00 62" in page(browser, f"/messages/orders/{sent.queue.queue_id}/{sent.queue_offset}")


def test_it_mounts_into_an_application_that_guards_it(store: Path) -> None:
    board = dashboard(store, guarded=True, hosts=["shop.example"], allow_actions=True)
    client = TestClient(Starlette(routes=[Mount("/rmq", board)]), base_url="http://shop.example")
    try:
        shown = client.get("/rmq/topics")
        assert shown.status_code == 200
        assert 'href="/rmq/topics/orders"' in shown.text
        assert "path=/rmq" in shown.headers["set-cookie"].lower()
        assert client.get("/rmq/static/dashboard.css").status_code == 200
        assert client.get("/rmq/topics", headers={"Host": "evil.example"}).status_code == 421
        consume(store, 1)
        posted = client.post("/rmq/groups/billing/pause", data={"form_token": form_token_at(client)}, headers=OWN)
        assert posted.status_code == 200
        assert "/rmq/groups/billing" in str(posted.url)
    finally:
        board.close()


def test_every_answer_carries_the_policy(store: Path) -> None:
    with visitor(store) as browser:
        for path in ("/", "/static/dashboard.css", "/nosuch", "/history"):
            headers = browser.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"


def test_answers_are_compressed_and_what_a_page_names_with_its_version_is_kept(store: Path) -> None:
    with visitor(store) as browser:
        answer = browser.get("/topics")
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["cache-control"] == "no-store"
        (address,) = re.findall(r'href="(/static/dashboard\.css\?v=\w+)"', answer.text)
        assert "immutable" in browser.get(address).headers["cache-control"]
        other = browser.get("/static/dashboard.css?v=other")
        assert other.headers["cache-control"] == "no-cache", "an old page does not keep a new file under its old name"
        tag = {"If-None-Match": other.headers["etag"]}
        assert browser.get("/static/dashboard.css", headers=tag).status_code == 304


def test_a_pause_says_why_and_who_and_how_many_wait(store: Path) -> None:
    consume(store, 2)
    with visitor(store, allow_actions=True) as browser:
        form = {"form_token": form_token(browser), "reason": "SMTP is down", "author": "ada"}
        browser.post("/groups/billing/pause", data=form, headers=OWN)
        shown = text_of(page(browser, "/"))
        assert "Behind in 1 of 1 group " in shown
        assert re.search(r"billing is paused by ada \(typed\) for \d+ s; \d+ wait", shown)
        assert "SMTP is down" in text_of(page(browser, "/groups/billing"))
        browser.post("/groups/billing/resume", data=form, headers=OWN)
    assert [(each.kind, each.subject, each.author) for each in marks_of(store)][-2:] == [
        ("pause", "billing", "ada (typed)"),
        ("resume", "billing", "ada (typed)"),
    ]


def test_a_visitor_whom_the_proxy_names_is_not_asked_for_a_name_and_cannot_give_another(store: Path) -> None:
    consume(store, 2)
    with visitor(store, allow_actions=True, author_header="X-User") as browser:
        assert 'name="author"' in page(browser, "/groups/billing")
        browser.headers["X-User"] = "grace"
        assert 'name="author"' not in page(browser, "/groups/billing")
        form = {"form_token": form_token(browser), "author": "ada"}
        browser.post("/groups/billing/pause", data=form, headers=OWN)
    assert marks_of(store)[-1].author == "grace"


def test_failures_are_shown_over_time_by_exception_on_the_pages_of_dead_letters_and_of_their_group(store: Path) -> None:
    consume(store, 3)
    give_up(store, 3)
    with visitor(store) as browser:
        for path in ("/dead-letters", "/groups/billing"):
            shown = page(browser, path)
            assert "Failures by exception" in shown, path
            assert 'aria-label="Dead letters over time: ValueError 3"' in shown, path
        assert "Failures by exception" not in page(browser, "/dead-letters?error=nothing like it")


def test_the_history_of_a_group_is_read_by_a_range(store: Path) -> None:
    consume(store, 12)
    with open_store(store) as opened:
        Recorder(opened.root, opened.lock).record()
    with visitor(store) as browser:
        for name in ("10m", "1h", "24h", "7d"):
            answer = browser.get("/history", params={"range": name, "group": "billing"}).json()
            assert len(answer["series"]["t"]) == len(answer["series"]["waited"]) >= 1, name
        assert browser.get("/history?range=2h").status_code == 400


def consume(root: Path, count: int) -> None:
    with PullConsumer(root, group="billing") as consumer:
        for queue in consumer.queues("orders"):
            consumer.commit(queue, min(count, consumer.max_offset(queue)))


def give_up(root: Path, count: int) -> None:
    """Make dead letters of the first messages, as a handler that fails for the last time does."""
    backend = open_backend(root)
    try:
        sender = copying(backend)
        (queue,) = [queue for queue in backend.topics.queues("orders") if backend.queues.span(queue).max_offset]
        backend.topics.create("%DLQ%billing", 1)
        for number in range(count):
            message = backend.queues.message_at(queue, number)
            failure = Failure(attempt=1, error="ValueError", text=f"number {number}", worker="w", trace="File shop.py")
            properties = with_failures(dict(message.properties) | {"RETRY_TOPIC": "orders"}, [failure])
            properties["ORIGIN_MESSAGE_ID"] = message.offset_message_id
            sender.append_copy(message, MessageQueue("%DLQ%billing", 0), properties, reconsume_times=1)
        sender.close()
    finally:
        backend.close()


def waiting(root: Path) -> int:
    backend = open_backend(root)
    try:
        return sum(each.waiting for each in dead_letters.groups(backend))
    finally:
        backend.close()


def fields_of(shown: str) -> dict[str, str]:
    """Return the hidden fields of the form of a page."""
    found = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', shown)
    return {name: html.unescape(value) for name, value in found}


def ended(browser: TestClient, job: Any) -> str:
    """Return what the page of a job says when it has ended."""
    assert job.status_code == 200, job.text
    is_ended = lambda: re.search("Done in|Cancelled after", page(browser, job.url.path))  # noqa: E731 - it is named
    eventually(is_ended, "the end of a job")
    return text_of(page(browser, job.url.path))


def form_token_at(client: TestClient) -> str:
    found = re.search(r'name="form-token" content="([0-9a-f]+)"', client.get("/rmq/topics").text)
    assert found
    return found[1]
