"""Workers on the pages: what hangs, what their threads run, and a store that is consumed without any."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")
pytest.importorskip("httpx2", reason="Starlette's test client needs httpx2")


from rmqclient import Message, Producer
from rmqclient.admin import Admin
from rmqclient.dashboard.pages import workers
from rmqclient.health.limits import Limits
from rmqclient.store import MemberInfo, MessageQueue, WorkerState, WorkerStatus, boottime, open_store
from rmqclient.store.observe.observation import Call
from rmqclient.store.observe.reading import Reading
from tests.dashboard.visiting import text_of, visitor
from tests.support.stores import SMALL
from tests.workers.supervised import Supervised

MARKUP = "<script>alert(1)</script>"
AT_A, AT_B = ("orders", 0, 1), ("payments", 1, 7)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Producer(tmp_path / "store", config=SMALL) as producer:
        producer.send(Message("orders", b"one"))
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@contextmanager
def worker(root: Path, oldest_s: float) -> Iterator[None]:
    """Let this process be a worker of itself, with two threads that run messages; the second one does for longer."""
    with open_store(root, SMALL, housekeeping=False) as opened:
        table = opened.workers()
        slot = table.claim("worker-1")
        table.assign(slot, os.getpid())
        mine = table.attach(slot)
        mine.set_state(WorkerState.READY)
        mine.beat()
        mine.report(2, 0, 0, boottime() - round(oldest_s * 1e9))
        yield


def runs(monkeypatch: pytest.MonkeyPatch, *ages_s: float) -> None:
    member = MemberInfo(0, 1, "billing", "orders", "me", os.getpid(), "*")
    calls = [
        Call("billing", MessageQueue(topic, queue_id), offset, offset, os.getpid(), age, member)
        for (topic, queue_id, offset), age in zip((AT_A, AT_B), ages_s, strict=True)
    ]
    monkeypatch.setattr(Reading, "calls", lambda _reading: calls[::-1])


def hangs_after(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the limit of the check. Nothing began before the host did, and the host may be up for a minute."""
    monkeypatch.setattr(workers, "Limits", partial(Limits, message_age_s=seconds))


def test_a_worker_that_hangs_is_shown_with_the_message_that_holds_it(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, 1.0, 20.0)
    hangs_after(monkeypatch, 15.0)
    with worker(store, 20.0), visitor(store) as browser:
        shown = text_of(browser.get("/workers").text)
        assert re.search(r"worker-1 hangs: 2\d s with payments 1:7 of group billing", shown)
        assert f'href="/workers/{os.getpid()}?stacks=1"' in browser.get("/workers").text, "two clicks"


def test_a_worker_hangs_on_its_page_when_it_hangs_for_the_check(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, 1.0, 20.0)
    with worker(store, 20.0), visitor(store) as browser:
        shown = browser.get("/workers").text
        assert "hangs" not in text_of(shown)
        assert ">hung" not in shown


def test_a_store_that_is_consumed_without_a_supervisor_misses_no_worker(store: Path) -> None:
    with Admin(store) as admin:
        admin.seek("billing", "orders", "earliest")
    with open_store(store, SMALL), visitor(store) as browser:
        needs = text_of(browser.get("/").text.partition('class="needs"')[2].partition("</ul>")[0])
    assert "workers are ready" not in needs
    assert "billing No members" in needs


def test_where_a_worker_hangs_is_said_with_its_message_and_the_line_of_its_code(tmp_path: Path) -> None:
    supervised = Supervised(tmp_path, "obedient", "--processes", "1")
    try:
        pid = supervised.ready(1)[1]
        supervised.send("hang")
        supervised.recorded("began hang")
        with visitor(supervised.root) as browser:
            assert f'href="/workers/{pid}"' in browser.get("/workers").text
            assert "stands in" not in text_of(browser.get(f"/workers/{pid}").text)
            shown = browser.get(f"/workers/{pid}?stacks=1").text
            answer = r"worker-1 stands in obedient.py:\d+ \(never_return\) for \d+ s, with message orders/\d/0 of group"
            assert re.search(answer, text_of(shown))

            # The handler's thread is first: the code of the application with its lines, all else folded
            stack = shown.partition('class="card stack"')[2]
            assert "threading.Event().wait()" in text_of(stack.partition('class="call-stack"')[2].partition("</ol>")[0])
            assert "worker.py" not in stack.partition("<details")[0]
            assert re.search(r"\d+ others", text_of(shown))
            assert "ready" in text_of(browser.get("/workers").text) or "running" in text_of(
                browser.get("/workers").text
            )
    finally:
        supervised.end()


def test_of_many_workers_those_that_hang_are_first_and_the_longest_before_the_others(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [
        Call(
            "billing",
            MessageQueue("orders", 0),
            pid,
            pid,
            pid,
            age,
            MemberInfo(0, 1, "billing", "orders", "me", pid, "*"),
        )
        for pid, age in ((4, 90.0), (3, 1.0), (2, 120.0))
    ]
    states = [WorkerStatus(pid, pid, 1, WorkerState.READY, 1.0, None, 1, 0, 0, f"worker-{pid}") for pid in (1, 2, 3, 4)]
    monkeypatch.setattr(Reading, "calls", lambda _reading: calls)
    monkeypatch.setattr(Reading, "workers", lambda _reading: states)
    hangs_after(monkeypatch, 60.0)
    with open_store(store, SMALL, housekeeping=False), visitor(store) as browser:
        rows = browser.get("/workers").text.partition("<tbody>")[2]
    assert re.findall(r">(worker-\d)<", rows) == ["worker-2", "worker-4", "worker-1", "worker-3"]


def test_what_is_no_worker_of_the_store_is_asked_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "stack_of", lambda *_: pytest.fail("it would get a signal"))
    with visitor(store) as browser:
        answer = browser.get(f"/workers/{os.getpid()}?stacks=1")
        assert answer.status_code == 404
        assert "is not a worker of this store" in text_of(answer.text)
        assert browser.get("/workers/0").status_code == 404


def test_stacks_stay_text(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = (
        f'Thread 0x1 (most recent call first):\n  File "/srv/{MARKUP}\N{RIGHT-TO-LEFT OVERRIDE}", line 1 in {MARKUP}'
    )
    monkeypatch.setattr(workers, "stack_of", lambda *_: stack)
    with worker(store, 0.0), visitor(store) as browser:
        shown = browser.get(f"/workers/{os.getpid()}?stacks=1").text
    assert MARKUP not in shown
    assert html.escape(MARKUP) + r"\u202e" in shown


def test_a_worker_that_tells_no_stack_is_said(store: Path) -> None:
    with worker(store, 0.0), visitor(store) as browser:
        assert "tells no stack" in text_of(browser.get(f"/workers/{os.getpid()}?stacks=1").text)
