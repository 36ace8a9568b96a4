"""``--log-format json``: each line of a log is one object, and says which message it is about."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable
from pathlib import Path

from rmqclient import MessageFields
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
        assert "any client may" in line["message"]


def test_a_line_about_another_message_of_a_batch_names_that_one() -> None:
    record = logging.makeLogRecord({"msg": "failed", "message_id": "ours"})
    assert MessageFields().filter(record)
    assert record.__dict__["message_id"] == "ours"
    assert json.loads(JsonFormatter().format(record))["message_id"] == "ours"


def test_what_is_not_json_becomes_text() -> None:
    record = logging.makeLogRecord({"msg": "at %s", "args": (Path("a"),), "levelname": "INFO", "path": Path("/x\n")})
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "at a"
    assert json.loads(line)["path"] == "/x\n"
