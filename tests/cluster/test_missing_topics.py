"""Handlers of topics that no cluster has yet: they wait for the route, whichever way they filter and begin."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, sql
from rmqclient.testing.serving import serve

PATIENCE_S = 30


@pytest.mark.guarantee("G103")
def test_handlers_that_start_before_their_topics_get_the_first_message_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Given handlers of every kind, and a cluster that has none of their topics
    monkeypatch.setenv("RMQ_STATE_DIR", str(tmp_path / "state"))
    caplog.set_level("INFO")
    with serve() as server:
        app, seen, everything = App(server.url), set[str](), threading.Event()
        kinds = {
            "plain": {},
            "latest": {"start": "latest"},
            "ordered": {"order": "key"},
            "broadcast": {"broadcast": True},
            "sql": {"filter": sql("price > 10")},
        }

        def take(message: ReceivedMessage) -> None:
            seen.add(message.topic)
            if len(seen) == len(kinds):
                everything.set()

        for topic, options in kinds.items():
            app.handler(topic, group=f"{topic}-group", **options)(take)  # type: ignore[arg-type]

        # When a process starts, and the topics are made by their first messages
        consumer = app.start(member_name="one")
        with Producer(server.url) as producer:
            for topic in kinds:
                producer.send(Message(topic, b"first", properties={"price": "20"}))

        # Then every handler gets its message, and the log has said once what was waited for
        try:
            assert everything.wait(PATIENCE_S), seen
        finally:
            consumer.stop(PATIENCE_S)
        for topic in kinds:
            told = [each for each in caplog.messages if f"waiting for topic {topic}," in each]
            assert len(told) == 1, told
