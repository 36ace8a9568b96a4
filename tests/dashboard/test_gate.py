"""Who may ask: the token, the cookie, and the names Host and Origin."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")
pytest.importorskip("httpx2", reason="Starlette's test client needs httpx2")

from starlette.routing import Route

from rmqclient import Message, Producer
from rmqclient.dashboard import Dashboard
from tests.dashboard.visiting import HOST, OWN, TOKEN, form_token, visitor
from tests.support.stores import SMALL

PAGES = ["/", "/topics", "/groups", "/messages", "/search", "/dead-letters", "/workers", "/schedules", "/transactions"]
DATA = ["/live", "/history"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Producer(tmp_path / "store", config=SMALL) as producer:
        producer.send(Message("orders", b"secret"))
    return tmp_path / "store"


@pytest.mark.guarantee("G51")
@pytest.mark.parametrize("path", PAGES + DATA)
def test_without_the_token_nothing_is_shown(store: Path, path: str) -> None:
    with visitor(store, token=None) as browser:
        answer = browser.get(path)
        assert answer.status_code == 401
        assert "orders" not in answer.text


@pytest.mark.parametrize("wrong", ["?token=wrong", f"?token={TOKEN}x", f"?token={TOKEN[:-1]}", "?token="])
def test_a_wrong_token_opens_nothing_and_gives_no_cookie(store: Path, wrong: str) -> None:
    with visitor(store, token=None) as browser:
        answer = browser.get(f"/{wrong}")
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


def test_the_token_is_exchanged_for_a_cookie_that_scripts_cannot_read(store: Path) -> None:
    with visitor(store, token=None) as browser:
        answer = browser.get(f"/topics?q=or&token={TOKEN}", follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/topics?q=or"
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(cookie.split("; "))
        assert TOKEN not in cookie
        assert browser.get("/topics").status_code == 200


@pytest.mark.parametrize("path", ["//evil.example", "///evil.example", "/%5Cevil.example", "/%2F/evil.example"])
def test_the_token_leads_to_no_other_host(store: Path, path: str) -> None:
    with visitor(store, token=None) as browser:
        asked = f"http://{HOST}{path}?token={TOKEN}"
        location = browser.get(asked, follow_redirects=False).headers["location"]
        assert urlsplit(urljoin(f"http://{HOST}/", location.replace("\\", "/"))).netloc == HOST


def test_the_token_leads_to_the_topic_that_was_asked_for(store: Path) -> None:
    with visitor(store, token=None) as browser:
        answer = browser.get(f"/topics/%25DLQ%25billing?token={TOKEN}", follow_redirects=False)
        assert answer.headers["location"] == "/topics/%25DLQ%25billing"


def test_a_cookie_that_was_not_signed_here_opens_nothing(store: Path) -> None:
    with visitor(store) as browser:
        ((name, value),) = browser.cookies.items()
        browser.cookies.clear()
        for forged in (f"other.{value.partition('.')[2]}", value[:-1], "x", "a.b; c"):
            assert browser.get("/topics", headers={"Cookie": f"{name}={forged}"}).status_code == 401
        assert browser.get("/topics", headers={"Cookie": f"{name}={value}"}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:9", "localhost.evil.example:8650", ""])
def test_a_foreign_host_is_refused(store: Path, host: str) -> None:
    with visitor(store) as browser:
        assert browser.get("/topics", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://[", "http://127.0.0.1:9999", f"http://{HOST}.evil.example"]
)
@pytest.mark.parametrize("path", ["/topics", "/history", "/live"])
def test_a_foreign_origin_is_refused(store: Path, origin: str, path: str) -> None:
    with visitor(store) as browser:
        assert browser.get(path, headers={"Origin": origin}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_an_action_of_a_foreign_page_is_refused(store: Path, headers: dict[str, str]) -> None:
    with visitor(store, allow_actions=True) as browser:
        token = form_token(browser)
        answer = browser.post("/groups/billing/pause", data={"form_token": token}, headers=headers)
        assert answer.status_code == 403


def test_an_action_without_the_form_token_is_refused(store: Path) -> None:
    with visitor(store, allow_actions=True) as browser:
        for shown in ("", "x", TOKEN):
            answer = browser.post("/groups/billing/pause", data={"form_token": shown}, headers=OWN)
            assert answer.status_code == 403
            assert "form" in answer.text


@pytest.mark.guarantee("G52")
def test_without_allow_actions_nothing_is_changed(store: Path) -> None:
    with visitor(store, allow_actions=False) as browser:
        token = form_token(browser)
        for path in ACTIONS.values():
            answer = browser.post(path, data={"form_token": token}, headers=OWN)
            assert answer.status_code == 403
            assert "--allow-actions" in answer.text


def test_each_action_is_in_the_list_above(store: Path) -> None:
    board = Dashboard(store, token=TOKEN)
    routes = [route for route in board._inside.routes if isinstance(route, Route)]
    posted = {route.path for route in routes if "POST" in (route.methods or ())}
    assert posted == set(ACTIONS)


ACTIONS = {
    "/groups/{group}/pause": "/groups/billing/pause",
    "/groups/{group}/resume": "/groups/billing/resume",
    "/groups/{group}/seek": "/groups/billing/seek",
    "/dead-letters/ticked": "/dead-letters/ticked",
    "/dead-letters/start": "/dead-letters/start",
    "/dead-letters/jobs/{number:int}/cancel": "/dead-letters/jobs/1/cancel",
    "/messages/{topic}/{queue_id:int}/{offset:int}/deliver": "/messages/orders/0/0/deliver",
    "/messages/{topic}/{queue_id:int}/{offset:int}/send": "/messages/orders/0/0/send",
    "/schedules/cancel": "/schedules/cancel",
    "/transactions/decide": "/transactions/decide",
}
"""Each route that takes a form, and a path of it."""
