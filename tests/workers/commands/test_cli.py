"""The command line in this process: usage, exit codes, and a round trip through a store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from rmqclient import App, Message, Producer, StoreConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store
from rmqclient.store.upkeep import retention
from rmqclient.store.upkeep.retention_rules import Clock
from rmqclient.workers.cli import rmq
from rmqclient.workers.commands.group import picture, ranges
from rmqclient.workers.console.parameters import duration, moment, name_and_value, start
from tests.workers.supervised import environment, eventually


def run(*arguments: str, stdin: bytes | None = None, **variables: str | None) -> Result:
    return CliRunner().invoke(rmq, arguments, input=stdin, env={"RMQ_STORE": None, **variables})


def data(result: Result) -> object:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("code", ["0", "1", "2", "3", "4", "5", "6", "130"])
def test_help_documents_every_exit_code(code: str) -> None:
    for arguments in (["--help"], ["run", "--help"]):
        lines = run(*arguments).stdout.partition("Exit codes:")[2].splitlines()
        assert any(line.split()[:1] == [code] for line in lines)


def test_help_loads_neither_the_store_nor_rich() -> None:
    program = (
        "import sys, rmqclient.workers.cli\n"
        "try: rmqclient.workers.cli.rmq(['--help'])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=30, check=True
    )
    assert {"rmqclient.app", "rmqclient.store.kernel", "rich", "multiprocess", "orjson"}.isdisjoint(done.stderr.split())


def test_a_command_is_run_without_the_modules_of_the_others(tmp_path: Path) -> None:
    program = (
        "import sys, rmqclient.workers.cli\n"
        "try: rmqclient.workers.cli.rmq(['--store', sys.argv[1], 'topic', 'ls'])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "nothing")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    commands = "rmqclient.workers.commands."
    imported = {name.removeprefix(commands) for name in done.stderr.split() if name.startswith(commands)}
    assert imported == {"topic", "table", "cheat", "completion"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "ls"],
        ["topic", "create", "orders", "--queues", "0", "--store", "x"],
        ["run"],
        ["run", "shop:app", "--processes", "0"],
        ["run", "shop:app", "--time-limit", "soon"],
        ["run", "no_such_module_anywhere:app"],
        ["send", "orders", "body", "--property", "nothing", "--store", "x"],
        ["tail", "orders", "--from", "tomorrow", "--store", "x"],
        ["tail", "orders", "-o", "json", "--store", "x"],
        ["nonsense"],
    ],
)
def test_wrong_usage_is_2_and_nothing_on_standard_output(arguments: list[str], tmp_path: Path) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr
    assert "Traceback" not in result.stderr


def test_a_store_that_is_not_there_is_3_and_is_not_made(tmp_path: Path) -> None:
    result = run("topic", "ls", "--store", str(tmp_path / "nothing"))
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith(f"rmq: cannot open the store {tmp_path / 'nothing'}: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30.0), ("500ms", 0.5), ("1.5s", 1.5), ("5m", 300.0), ("2h", 7200.0), ("3d", 259_200.0), ("0", 0.0)],
)
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1w", "s"])
def test_other_text_is_not_a_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        duration(text)


def test_starting_points_and_properties_as_people_write_them() -> None:
    assert [start(text) for text in ("earliest", "latest", "-100")] == ["earliest", "latest", "-100"]
    assert name_and_value("colour=deep=red") == ("colour", "deep=red")
    assert name_and_value("colour=") == ("colour", "")


def test_a_message_that_is_sent_can_be_read_and_counted(tmp_path: Path) -> None:
    store = str(tmp_path / "store")

    # Given a topic with two queues
    assert run("topic", "create", "orders", "--queues", "2", "--store", store).exit_code == 0
    made = run("topic", "create", "prices", "--cleanup-policy", "compact", "--store", store, "-o", "json")
    assert json.loads(made.stdout)["cleanup_policy"] == "compact"
    refused = run("topic", "create", "orders", "--cleanup-policy", "compact", "--store", store)
    assert "was made with cleanup_policy='delete'" in refused.stderr

    # When messages are sent, one of them from standard input with everything that can be said about it
    sent = data(run("send", "orders", "plain", "--count", "2", "-o", "json", "--store", store))
    assert isinstance(sent, list)
    assert len(sent) == 2
    full = ["--tags", "paid", "--key", "7", "--key", "8", "--property", "colour=red", "--sharding-key", "k"]
    assert run("send", "orders", "-", *full, "-o", "json", "--store", store, stdin=b"\xff\x00").exit_code == 0

    # Then the last one is read with all of that
    read = data(run("tail", "orders", "--from", "earliest", "--no-follow", "-o", "json", "--store", store))
    assert isinstance(read, list)
    (last,) = [row for row in read if row["body"] is None]
    assert (last["body_base64"], last["tags"], last["keys"]) == ("/wA=", "paid", ["7", "8"])
    assert last["properties"]["colour"] == "red"
    assert sorted(row["body"] for row in read if row["body"] is not None) == ["plain", "plain"]

    # And the topic counts all three, found by the option or by the environment
    assert data(run("topic", "ls", "-o", "json", "--query", "[?topic == 'orders'].messages", "--store", store)) == [3]
    detail = data(run("topic", "info", "orders", "-o", "json", RMQ_STORE=store))
    assert isinstance(detail, dict)
    assert [queue["queue_id"] for queue in detail["queues"]] == [0, 1]

    # And a person reads one line for each
    lines = run("tail", "orders", "--from", "-1", "--no-follow", "--store", store)
    assert lines.exit_code == 0
    assert lines.stdout


@pytest.mark.parametrize("compression", ["lz4", "zstd", "zlib"])
def test_a_body_can_be_sent_compressed_and_is_shown_as_it_was(tmp_path: Path, compression: str) -> None:
    store = str(tmp_path / "store")
    text = "UA1545 is late. " * 100
    (sent,) = rows(run("send", "flights", text, "--compress", compression, "-o", "json", "--store", store))

    (shown,) = rows(run("tail", "flights", "--from", "earliest", "--no-follow", "-o", "json", "--store", store))
    assert shown["body"] == text
    with open_store(store) as opened:
        assert len(opened.messages.read(sent["commit_log_offset"]).stored_body) < 200


def test_times_as_people_write_them() -> None:
    assert moment("2026-01-31T12:00+01:00") == 1_769_857_200_000
    assert start("2026-01-31T11:00Z") == 1_769_857_200_000
    before = int(time.time() * 1000)  # as whole as the answer
    assert before - 7_200_000 <= moment("2h") <= time.time() * 1000 - 7_200_000 + 1
    for text in ("soon", "2026-13-01", "--", "-2h"):
        with pytest.raises(click.BadParameter, match="write"):
            start(text)


def test_a_message_is_found_by_its_id_by_key_and_by_time(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    (sent,) = rows(run("send", "orders", "first", "--key", "7", "-o", "json", "--store", store))
    run("send", "orders", "second", "--key", "7", "--store", store)

    # By its id, as a person and as a program reads it
    assert "first" in run("message", "show", sent["message_id"], "--store", store).stdout
    shown = data(run("message", "show", sent["message_id"], "-o", "json", "--query", "body", "--store", store))
    assert shown == "first"
    assert run("message", "show", sent["message_id"], "--topic", "other", "--store", store).exit_code == 1
    assert run("message", "show", "0" * 32, "--store", store).stderr == f"rmq: no message has the id {'0' * 32}\n"

    # By its key, the newest first, and by time
    find = ("message", "find", "orders", "7", "-o", "json", "--store", store)
    assert [row["body"] for row in rows(run(*find))] == ["second", "first"]
    assert [row["body"] for row in rows(run(*find, "--since", "1h", "--limit", "1"))] == ["second"]
    missed = run(*find, "--until", "1h")
    assert (missed.exit_code, json.loads(missed.stdout)) == (1, [])
    tail = ("tail", "orders", "--no-follow", "-o", "json", "--store", store)
    assert len(rows(run(*tail, "--from", "1h"))) == 2
    assert rows(run(*tail, "--from", "2999-01-01")) == []
    assert run("message", "find", "other", "7", "--store", store).exit_code == 1


def rows(result: Result) -> list[dict[str, Any]]:
    found = data(result)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    "command",
    [
        ["message", "find", "t", "\udcff"],
        *(["send", "t", "x", f"--{option}", "\udcff"] for option in ("sharding-key", "tags", "key")),
        ["send", "t", "x", "--property", "a=\udcff"],
    ],
    ids=lambda command: command[-2],
)
def test_an_argument_that_is_no_text_is_wrong_usage_and_named(tmp_path: Path, command: list[str]) -> None:
    assert run("topic", "create", "t", "--store", str(tmp_path)).exit_code == 0
    result = run(*command, "--store", str(tmp_path))
    assert (result.exit_code, "'\\udcff' is not UTF-8" in result.stderr) == (2, True)


def test_an_unknown_topic_is_1_and_one_line(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    assert run("topic", "create", "orders", "--store", store).exit_code == 0
    result = run("topic", "info", "nothing", "--store", store)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("rmq: ")
    assert result.stderr.count("\n") == 1


def test_old_files_are_removed_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a store of three small files, two hours later
    config = StoreConfig(commit_log_file_bytes=40_000, max_body_bytes=2_000)
    with Producer(tmp_path, config=config) as producer:
        ends = [producer.send(Message("t", bytes(2_000))).commit_log_end for _ in range(50)]
    now = Clock().wall_ms()
    monkeypatch.setattr(Clock, "wall_ms", lambda _: now + 7_200_000)
    monkeypatch.setattr(retention, "PAUSE_S", 0.0)

    # Then nothing is older than the three days of the setting, and two files are older than an hour
    arguments = ("store", "clean", "-o", "json", "--store", str(tmp_path))
    assert data(run(*arguments)) == {"removed_files": 0, "removed_bytes": 0, "min_offset": 0}
    expected = {"removed_files": 2, "removed_bytes": 80_000, "min_offset": 80_000}
    assert data(run(*arguments, "--reserved-hours", "1")) == expected
    assert 80_000 < ends[-1] < 120_000


def test_broker_conf_prints_the_settings_of_a_broker_for_the_directory(tmp_path: Path) -> None:
    root = tmp_path / "store"
    assert run("topic", "create", "orders", "--store", str(root)).exit_code == 0
    result = run("store", "broker-conf", str(root))
    assert result.exit_code == 0
    assert f"storePathRootDir={root}\nstorePathCommitLog={root}/commitlog\n" in result.stdout


def test_broker_conf_of_a_directory_that_is_no_store_is_exit_code_3(tmp_path: Path) -> None:
    result = run("store", "broker-conf", str(tmp_path))
    assert result.exit_code == 3
    assert "holds no store" in result.stderr


def test_group_assignment_shows_who_has_what_spares_and_queues_that_nobody_has(tmp_path: Path) -> None:
    def handle(message: object) -> None: ...

    root = tmp_path / "store"
    app = App(root)
    app.handler("orders", group="billing")(handle)
    with open_store(root) as store:
        store.topics.create("orders", 2)
        consumers = [PushConsumer(store, app.handlers, client_id=name) for name in "abc"]
        for consumer in consumers:
            consumer.start()
        eventually(lambda: [len(each.queues["orders@billing"]) for each in consumers] == [1, 1, 0], "a spare")
        rows: Any = data(run("group", "assignment", "billing", "-o", "json", "--store", str(root)))
        assert {row["topic"] for row in rows} == {"orders", "%RETRY%billing"}
        rows = [row for row in rows if row["topic"] == "orders"]
        assert [(row["client_id"], row["queue_ids"]) for row in rows] == [("a", [0]), ("b", [1]), ("c", [])]
        assert {(row["topic"], row["pid"], row["subscription"]) for row in rows} == {
            ("orders", os.getpid(), "tags *; allocation averaged")
        }
        lines = run("group", "assignment", "billing", "--store", str(root)).stdout.splitlines()
        assert [line.split()[1:] for line in lines[1:] if line.startswith("orders")] == [
            ["a", str(os.getpid()), "1", "0", "█·"],
            ["b", str(os.getpid()), "1", "1", "·█"],
            ["c", str(os.getpid()), "0", "spare", "··"],
        ]
        for consumer in consumers:
            consumer.close()
        rows = data(run("group", "assignment", "billing", "-o", "json", "--store", str(root)))
        assert [(row["client_id"], row["queue_ids"]) for row in rows] == [(None, [0, 1])]


@pytest.mark.parametrize(
    ("numbers", "written"), [([], ""), ([3], "3"), ([0, 1, 2, 3, 7], "0-3, 7"), ([1, 3, 5], "1, 3, 5")]
)
def test_queue_ids_are_written_as_ranges(numbers: list[int], written: str) -> None:
    assert ranges(numbers) == written


def test_a_picture_of_many_queues_is_no_wider_than_a_screen() -> None:
    assert picture([0, 999], 1_000) == "█" + "·" * 62 + "█"
    assert picture([], 0) == ""
