"""``--log-format json``: each line of a log is one object, and says which message it is about."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Batch, ConsumerConfig, Message, Producer, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.delivery.log_context import ContextFilter, handled_now
from rmqclient.store import open_store
from rmqclient.workers.processes.logs import JsonFormatter
from tests.broker.life.serving import serving
from tests.workers.supervised import Supervised, eventually


def test_a_run_logs_objects_that_name_the_message(supervise: Callable[..., Supervised]) -> None:
    workers = supervise("logging_app", "--processes", "1", "--log-format", "json", "--metrics", "127.0.0.1:0")
    workers.logged("all workers are ready")
    workers.send("good", "bad")
    eventually(lambda: {"handled good", "bad luck"} <= set(words(workers)), "both lines", workers)
    workers.process.send_signal(signal.SIGTERM)
    assert workers.exit_code() == 0
    lines = [json.loads(line) for line in workers.log.splitlines()]
    assert {line["level"] for line in lines} >= {"INFO", "WARNING"}
    assert all(line["time"].endswith("Z") and line["logger"] and line["pid"] for line in lines)
    (good,) = [line for line in lines if line["message"] == "handled good"]
    assert (good["topic"], good["group"], good["attempt"], good["order"]) == ("orders", "billing", 1, 7)
    assert len(good["message_id"]) == 32
    (failed,) = [line for line in lines if "attempt 1 of message" in line["message"]]
    assert failed["error"].endswith("ValueError: bad luck")
    (bad,) = [line for line in lines if line["message"] == "bad luck"]
    assert {name: failed[name] for name in ("message_id", "topic", "group", "attempt")} == {
        name: bad[name] for name in ("message_id", "topic", "group", "attempt")
    }


def words(workers: Supervised) -> list[str]:
    return [json.loads(line)["message"] for line in workers.log.splitlines()]


def test_a_server_logs_objects(tmp_path: Path) -> None:
    with serving(tmp_path, str(tmp_path / "store"), "--log-format", "json", listen="0.0.0.0:0") as server:
        (line,) = map(json.loads, server.log.splitlines())
        assert line["level"] == "WARNING"
        assert "whoever reaches it" in line["message"]


@pytest.mark.parametrize("kind", ["function", "coroutine", "batch"])
def test_a_handler_of_any_kind_is_known_to_its_lines(tmp_path: Path, kind: str) -> None:
    seen: list[Any] = []
    app = App()
    decorate = app.handler("orders", group="billing", **({"batch": Batch(2)} if kind == "batch" else {}))

    def handle(message: ReceivedMessage) -> None:
        seen.append(handled_now())

    async def handle_async(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        seen.append(handled_now())

    def handle_batch(messages: list[ReceivedMessage]) -> None:
        seen.append(handled_now())

    decorate({"function": handle, "coroutine": handle_async, "batch": handle_batch}[kind])
    with open_store(tmp_path) as store, Producer(store) as producer:
        producer.create_topic("orders", 1)
        sent = producer.send_batch([Message("orders", b"1"), Message("orders", b"2")])
        consumer = PushConsumer(store, app.handlers, config=ConsumerConfig(log_context=True))
        consumer.start()
        eventually(lambda: seen and (kind == "batch" or len(seen) == 2), "the calls")
        consumer.close()
    assert {each.topic for each in seen} == {"orders"}
    assert {each.group for each in seen} == {"billing"}
    assert {each.attempt for each in seen} == {1}
    assert {each.messages for each in seen} == ({2} if kind == "batch" else {1})
    assert len(sent) == 2
    assert handled_now().message_id == "", "outside of a handler nothing is known"


@pytest.mark.parametrize("wanted", [False, True])
def test_without_the_setting_nothing_stands_between_a_thread_and_its_handler(tmp_path: Path, wanted: bool) -> None:
    callers: list[str] = []
    app = App()

    @app.handler("orders", group="billing")
    def handle(message: ReceivedMessage) -> None:
        callers.append(Path(sys._getframe(1).f_code.co_filename).stem)

    with open_store(tmp_path) as store, Producer(store) as producer:
        producer.send(Message("orders", b"1"))
        consumer = PushConsumer(store, app.handlers, config=ConsumerConfig(log_context=wanted))
        consumer.start()
        eventually(lambda: callers, "the call")
        consumer.close()
    assert callers == (["log_context"] if wanted else ["concurrent"])


def test_a_filter_completes_the_records_of_other_formats() -> None:
    record = logging.makeLogRecord({"msg": "hello", "topic": "given"})
    assert ContextFilter().filter(record)
    text = logging.Formatter("%(topic)s %(group)s %(message_id)s %(attempt)d %(message)s").format(record)
    assert text == "given   0 hello"


def test_what_is_not_json_becomes_text() -> None:
    record = logging.makeLogRecord({"msg": "at %s", "args": (Path("a"),), "levelname": "INFO", "path": Path("/x\n")})
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "at a"
    assert json.loads(line)["path"] == "/x\n"
