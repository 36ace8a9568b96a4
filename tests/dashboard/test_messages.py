"""The page of a message: what became of it over time, its body byte for byte, and sending it again."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")
pytest.importorskip("httpx2", reason="Starlette's test client needs httpx2")

from starlette.testclient import TestClient

from rmqclient import App, ConsumerConfig, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.admin.life import life_of
from rmqclient.backend import Backend
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.dashboard.looking.answers import answers_of
from rmqclient.dashboard.looking.bodies import SHOWN_BYTES
from rmqclient.dashboard.looking.waterfall import Lane, waterfall_of
from rmqclient.message import SendResult
from rmqclient.opening import open_backend
from rmqclient.store import MessageStore, clock, open_store
from rmqclient.store.marks import marks_of
from tests.dashboard.visiting import OWN, form_token, text_of, visitor
from tests.support.stores import SMALL
from tests.workers.supervised import eventually

TRACED = ConsumerConfig(message_trace=True, local_retry_ms=20)
ONCE = RetryPolicy(max_retries=1, delays=(0.2,))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", SMALL) as store:
        yield store


@contextmanager
def handling(store: MessageStore, app: App, config: ConsumerConfig | None = None) -> Iterator[Producer]:
    """Yield a producer while the handlers of an application run."""
    consumer = PushConsumer(store, app.handlers, config=config) if config else PushConsumer(store, app.handlers)
    with consumer, Producer(store) as producer:
        yield producer


def lanes(backend: Backend, sent: SendResult) -> dict[str, Lane]:
    life = life_of(backend, backend.queues.message_at(sent.queue, sent.queue_offset))
    fall = waterfall_of(life, answers_of(life, backend.groups.all()), clock.wall_ms())
    return {lane.answer.group: lane for lane in fall.lanes}


def standings(backend: Backend, sent: SendResult) -> set[str]:
    return {lane.answer.standing for lane in lanes(backend, sent).values()}


def kinds_of(backend: Backend, sent: SendResult, group: str) -> list[str]:
    return [bar.kind for bar in lanes(backend, sent)[group].bars]


def place_of(sent: SendResult) -> str:
    return f"/messages/{sent.queue.topic}/{sent.queue.queue_id}/{sent.queue_offset}"


def show(browser: TestClient, path: str) -> str:
    answer = browser.get(path)
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def test_the_pause_of_a_retry_and_the_time_of_each_call_are_bars_of_their_group(store: MessageStore) -> None:
    # Given a group that fails once and then handles, a group that gives up, and the message trace
    app = App()
    attempts: list[int] = []

    @app.handler("orders", group="billing", retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        attempts.append(message.delivery_attempt)
        if len(attempts) == 1:
            raise TimeoutError("the bank is slow")

    @app.handler("orders", group="ledger", retry=RetryPolicy(max_retries=0))
    def book(_: ReceivedMessage) -> None:
        raise KeyError("total")

    backend = open_backend(store)
    with handling(store, app, TRACED) as producer:
        sent = producer.send(Message("orders", b"one"))
        eventually(lambda: standings(backend, sent) == {"finished", "given up"}, "the end in both groups")
        # What the trace says comes a moment later.
        eventually(lambda: kinds_of(backend, sent, "billing").count("runs") == 2, "two calls of billing in the trace")
        eventually(lambda: "runs" in kinds_of(backend, sent, "ledger"), "the call of ledger in the trace")

    # Then the lanes tell what took how long, and the sentences say why
    found = lanes(backend, sent)
    assert list(found) == ["ledger", "billing"], "what needs somebody stands first"
    billing, ledger = found["billing"], found["ledger"]
    assert [bar.kind for bar in billing.bars if bar.kind in ("runs", "retry")] == ["runs", "retry", "runs"]
    (pause,) = (bar for bar in billing.bars if bar.kind == "retry")
    assert 150 <= pause.end_ms - pause.begin_ms <= 5_000
    assert re.match(r"handled it in [\d,]+ ms after 1 attempt that failed", billing.answer.text)
    assert "KeyError: 'total', in dashboard/test_messages.py in book" in ledger.answer.text
    assert [point.tone for point in billing.points][-1] == "good"
    assert all(bar.begin_ms <= bar.end_ms for lane in found.values() for bar in lane.bars)


def test_a_message_that_waits_for_its_retry_is_not_called_finished(store: MessageStore) -> None:
    app, failed = App(), threading.Event()

    @app.handler("orders", group="billing", retry=RetryPolicy(max_retries=1, delays=(3_600,)))
    def bill(_: ReceivedMessage) -> None:
        failed.set()
        raise TimeoutError("the bank is slow")

    backend = open_backend(store)
    with handling(store, app) as producer:
        sent = producer.send(Message("orders", b"one"))
        eventually(lambda: lanes(backend, sent)["billing"].answer.standing == "sent back", "a retry that waits")
    answer = lanes(backend, sent)["billing"].answer
    assert answer.text.startswith("failed in 1 attempt and tries again. TimeoutError: the bank is slow")
    assert answer.at_ms is not None
    assert answer.at_ms > clock.wall_ms() + 3_000_000


def test_a_message_that_runs_now_is_a_bar_up_to_now_with_its_worker(store: MessageStore) -> None:
    app, runs, ends = App(), threading.Event(), threading.Event()

    @app.handler("orders", group="billing")
    def bill(_: ReceivedMessage) -> None:
        runs.set()
        ends.wait(60)

    backend = open_backend(store)
    with handling(store, app) as producer:
        try:
            sent = producer.send(Message("orders", b"one"))
            assert runs.wait(60)
            eventually(lambda: lanes(backend, sent)["billing"].answer.standing == "runs", "a call that runs")
            (run,) = (bar for bar in lanes(backend, sent)["billing"].bars if bar.kind == "runs")
            with visitor(store.root) as browser:
                assert "runs for" in text_of(show(browser, place_of(sent)))
        finally:
            ends.set()
    assert "runs in " in run.text


@pytest.mark.guarantee("G123")
@pytest.mark.parametrize(
    "body", [b"a\xe2\x80\x8db\x00c\xef\xbb\xbf", b"\xff\xfe\x00binary", b"\r\n two", b"x" * 3_000_000]
)
def test_a_download_is_the_body_byte_for_byte_at_any_size(tmp_path: Path, body: bytes) -> None:
    with Producer(tmp_path / "store") as producer:
        sent = producer.send(Message("orders", body))
    with visitor(tmp_path / "store") as browser:
        answer = browser.get(f"{place_of(sent)}/body")
        assert answer.content == body
        assert answer.headers["content-disposition"].startswith("attachment; ")
        shown = show(browser, place_of(sent))
        assert ('data-form="base64"' in shown) == (len(body) <= SHOWN_BYTES and b"\xff" not in body), (
            "all of it, or none"
        )


@pytest.mark.parametrize("body", ["one\ntwo\n", "one\r\ntwo", "\n\nlines", '{"a": "<b>&amp;</b>"}', "\u200d zero"])
def test_an_edited_copy_changes_what_was_edited_and_nothing_else(tmp_path: Path, body: str) -> None:
    with Producer(tmp_path / "store", config=SMALL) as producer:
        message = Message("orders", body.encode(), tags="paid", keys=("A-1",), properties={"mine": "1"})
        sent = producer.send(message, sharding_key="one")
    with visitor(tmp_path / "store", allow_actions=True) as browser:
        asked = show(browser, f"{place_of(sent)}/again")
        (field,) = re.findall(r'<textarea name="body"[^>]*>\n(.*)</textarea>', asked, re.DOTALL)
        written = html.unescape(field).replace("\r\n", "\n").replace("\n", "\r\n")  # as a browser posts it
        form = {"form_token": form_token(browser), "keys": "A-1", "tag": "paid", "body": written}
        done = browser.post(f"{place_of(sent)}/send", data=form, headers=OWN)
        assert "as a new message" in text_of(done.text)
    topic, queue_id, offset = str(done.url.path).split("/")[-3:]
    with open_store(tmp_path / "store") as store:
        queue = next(each for each in open_backend(store).topics.queues(topic) if each.queue_id == int(queue_id))
        copy = open_backend(store).queues.message_at(queue, int(offset))
    assert (copy.body, copy.tags, copy.keys, copy.sharding_key) == (body.encode(), "paid", ("A-1",), "one")
    assert copy.properties["mine"] == "1"
    assert copy.message_id != sent.message_id


@pytest.mark.parametrize("body", [b"a\x00b", b"\xff", b"one\r\ntwo\n", b"x" * (SHOWN_BYTES + 1)])
def test_a_body_that_a_field_would_change_is_sent_as_it_is(tmp_path: Path, body: bytes) -> None:
    with Producer(tmp_path / "store") as producer:
        sent = producer.send(Message("orders", body), sharding_key="one")
    with visitor(tmp_path / "store", allow_actions=True) as browser:
        asked = show(browser, f"{place_of(sent)}/again")
        assert "<textarea" not in asked
        assert "is sent as it is" in text_of(asked)
        done = browser.post(f"{place_of(sent)}/send", data={"form_token": form_token(browser)}, headers=OWN)
        assert browser.get(f"{done.url.path}/body").content == body


def test_a_message_is_delivered_once_more_to_one_group_alone(store: MessageStore) -> None:
    app, handled = App(), list[tuple[str, str]]()
    app.handler("orders", group="billing")(lambda message: handled.append(("billing", message.message_id)))
    app.handler("orders", group="ledger")(lambda message: handled.append(("ledger", message.message_id)))
    with handling(store, app) as producer:
        sent = producer.send(Message("orders", b"one"))
        eventually(lambda: len(handled) == 2, "both groups")
        with visitor(store.root, allow_actions=True) as browser:
            assert "Replay to billing only?" in text_of(show(browser, f"{place_of(sent)}/again?group=billing"))
            form = {"form_token": form_token(browser), "group": "billing"}
            done = browser.post(f"{place_of(sent)}/deliver", data=form, headers=OWN)
            assert "Sent to billing alone" in text_of(done.text)
            refused = browser.post(f"{place_of(sent)}/deliver", data=form | {"group": "nobody"}, headers=OWN)
            assert refused.status_code == 400
        eventually(lambda: len(handled) == 3, "billing again")
        producer.send(Message("orders", b"two"))
        eventually(lambda: len(handled) == 5, "both groups again")
    assert handled.count(("billing", sent.message_id)) == 2
    assert handled.count(("ledger", sent.message_id)) == 1
    (mark,) = marks_of(store.root, kinds=["replay"])
    assert (mark.subject, sent.message_id in mark.words, "browser" in mark.author) == ("billing", True, True)


def test_nothing_is_sent_without_allow_actions(store: MessageStore) -> None:
    with Producer(store) as producer:
        sent = producer.send(Message("orders", b"one"))
    with visitor(store.root) as browser:
        form = {"form_token": form_token(browser), "group": "billing"}
        for action in ("deliver", "send"):
            assert browser.post(f"{place_of(sent)}/{action}", data=form, headers=OWN).status_code == 403
        assert "Edit and send again" not in text_of(show(browser, place_of(sent)))
