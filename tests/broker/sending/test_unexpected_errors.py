"""An error that nobody expected ends no thread of the server: each is logged, and the next turn goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqclient.broker.address import Address
from rmqclient.broker.groups import seats
from rmqclient.broker.producers import questions, reply_watch
from rmqclient.remoting.bodies import ConsumerData, Heartbeat, Subscription
from rmqclient.remoting.codes import ResponseCode
from tests.broker.asking import LONGEST_S, asking
from tests.broker.sending.sends import ONES, send_of

ASKS = {**ONES, "CORRELATION_ID": "1", "REPLY_TO_CLIENT": "10.0.0.9@1", "TTL": "15000"}


def failing_once(method: Callable[..., Any]) -> tuple[Callable[..., Any], threading.Event]:
    """Return a method that fails at its first call, and what is set by the second one."""
    has_failed, came_again = threading.Event(), threading.Event()

    def call(*arguments: Any) -> Any:
        if not has_failed.is_set():
            has_failed.set()
            raise RuntimeError("planted")
        came_again.set()
        return method(*arguments)

    return call, came_again


def test_messages_whose_flush_fails_are_answered_as_stored_and_the_next_ones_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with asking(tmp_path, sync=True) as client:
        flusher = client.broker.store.flusher
        monkeypatch.setattr(flusher, "wait_until_flushed", failing_once(flusher.wait_until_flushed)[0])
        failed, then = client.ask_frame(send_of()), client.ask_frame(send_of())
    assert (failed.code, then.code) == (ResponseCode.FLUSH_DISK_TIMEOUT, 0)
    assert "planted" in (failed.remark or "")
    assert "planted" in caplog.text


def test_members_are_shown_to_live_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing, came_again = failing_once(seats.Seats._show_life)
    monkeypatch.setattr(seats.Seats, "_show_life", failing)
    consumer = ConsumerData("billing", subscriptions=(Subscription("orders"),))
    with asking(tmp_path) as client:
        client.beat(Heartbeat("10.0.0.9@1", consumers=(consumer,)), Address("10.0.0.9", 40_000))
        assert came_again.wait(LONGEST_S)
    assert "planted" in caplog.text


def test_replies_are_looked_for_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reply_watch, "LONGEST_SLEEP_S", 0.01)
    failing, came_again = failing_once(reply_watch.ReplyWatch._follow)
    monkeypatch.setattr(reply_watch.ReplyWatch, "_follow", failing)
    with asking(tmp_path) as client:
        assert client.ask_frame(send_of(properties=ASKS)).code == 0
        assert came_again.wait(LONGEST_S)
    assert "planted" in caplog.text


def test_undecided_transactions_are_looked_at_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(questions, "LONGEST_SLEEP_S", 0.01)
    failing, came_again = failing_once(questions.Questions._look)
    monkeypatch.setattr(questions.Questions, "_look", failing)
    with asking(tmp_path) as client:
        half = {**ONES, "TRAN_MSG": "true", "PGROUP": "makers"}
        assert client.ask_frame(send_of(properties=half, sysFlag=4)).code == 0
        assert came_again.wait(LONGEST_S)
    assert "planted" in caplog.text
