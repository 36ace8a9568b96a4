"""Visitors: clients of a dashboard in this process, with the token or without."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.testclient import TestClient

from rmqclient.dashboard import Dashboard

HOST = "127.0.0.1:8650"
TOKEN = "a token for tests only"
OWN = {"Sec-Fetch-Site": "same-origin"}
"""What a browser says with the forms of a page."""


@contextmanager
def visitor(
    store: Path, *, token: str | None = TOKEN, allow_actions: bool = False, author_header: str | None = None
) -> Iterator[TestClient]:
    """Yield a client of a new dashboard, which came in by the token unless that is None."""
    board = Dashboard(store, token=TOKEN, hosts=[HOST], allow_actions=allow_actions, author_header=author_header)
    try:
        client = TestClient(board, base_url=f"http://{HOST}", raise_server_exceptions=True)
        if token is not None:
            assert client.get("/topics", params={"token": token}).status_code == 200
        yield client
    finally:
        board.close()


def form_token(browser: TestClient) -> str:
    """Return the token of the forms of this visitor."""
    found = re.search(r'name="form-token" content="([0-9a-f]+)"', browser.get("/topics").text)
    assert found
    return found[1]


def text_of(page: str) -> str:
    """Return what a person reads of a page: its text without the markup."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())
