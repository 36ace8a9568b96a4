"""How much a browser loads of a store with 300 topics and 107 groups that all lag, as it comes over a network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")

from starlette.testclient import TestClient

from rmqclient import Message, Producer
from rmqclient.admin import Admin
from tests.dashboard.visiting import visitor
from tests.support.stores import SMALL

TOPICS, GROUPS = 300, 107
FIRST_LOAD, UPDATE = 150_000, 5_000
"""Bytes, at most."""
PAGES = ["/", "/groups", "/topics", "/workers", "/schedules", "/events"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sizes") / "store"
    with Producer(root, config=SMALL) as producer, Admin(root) as admin:
        for number in range(TOPICS):
            producer.create_topic(f"topic-{number}", 1)
            producer.send(Message(f"topic-{number}", b"%d" % number))
        for number in range(GROUPS):
            admin.seek(f"group-{number}", f"topic-{number}", "earliest")
    return root


def sent_for(browser: TestClient, path: str) -> int:
    """Return how many bytes of a body are sent, compressed as for any browser."""
    answer = browser.get(path, headers={"Accept-Encoding": "gzip"})
    assert answer.status_code == 200
    return int(answer.headers["content-length"])


def test_the_first_page_loads_little_and_all_that_it_names_with_it(store: Path) -> None:
    with visitor(store) as browser:
        named = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', browser.get("/").text))
        sizes = {path: sent_for(browser, path) for path in [*named, "/", "/history?range=10m"]}
    assert len(named) > 3
    assert sum(sizes.values()) < FIRST_LOAD, sizes


@pytest.mark.parametrize("path", PAGES)
def test_an_update_is_small(store: Path, path: str) -> None:
    with visitor(store) as browser:
        assert sent_for(browser, path) < UPDATE
