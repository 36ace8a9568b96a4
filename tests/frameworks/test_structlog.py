"""structlog: every event of a handler names its message."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("structlog", reason="no structlog: make install-all brings it")

import structlog

from rmqclient import App
from rmqclient.frameworks.structlog import add_message
from rmqclient.testing.kit import Kit


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_events_of_plain_and_async_handlers_name_their_message(rmq: Callable[..., Kit]) -> None:
    lines = structlog.testing.CapturingLogger()
    structlog.configure(processors=[add_message, structlog.processors.JSONRenderer()], logger_factory=lambda *_: lines)
    log, app = structlog.get_logger(), App("./nowhere")

    def book() -> None:
        log.info("booked", group="my own")

    @app.handler("orders", group="billing")
    def bill(body: str) -> None:
        book()

    @app.handler("mail", group="mail")
    async def write(body: str) -> None:
        log.info("written")

    kit = rmq(app)
    ids = [kit.send(topic, "x").message_id for topic in ("orders", "mail")]
    log.info("before")
    kit.drain()
    events = [json.loads(call.args[0]) for call in lines.calls]
    by_name = {event.pop("event"): event for event in events}
    assert by_name["before"] == {}
    assert by_name["booked"] == {"message_id": ids[0], "topic": "orders", "group": "my own", "attempt": 1}
    assert by_name["written"] == {"message_id": ids[1], "topic": "mail", "group": "mail", "attempt": 1}


def test_lines_of_logging_get_them_too(rmq: Callable[..., Kit], caplog: pytest.LogCaptureFixture) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[add_message],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer()],
    )
    app, lines = App("./nowhere"), []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(self.format(record)))

    handler = Lines()
    handler.setFormatter(formatter)
    logger = logging.getLogger("test_structlog")
    logger.addHandler(handler)

    @app.handler("orders", group="billing")
    def bill(body: str) -> None:
        logger.warning("billed")

    kit = rmq(app)
    sent = kit.send("orders", "x")
    kit.drain()
    logger.removeHandler(handler)
    assert [(line["event"], line["message_id"]) for line in lines] == [("billed", sent.message_id)]
