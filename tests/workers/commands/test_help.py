"""Help, cheat sheets, settings and completion of every command."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from rmqclient.workers.cli import rmq
from rmqclient.workers.commands.cheat import _WANTED, EXAMPLES
from rmqclient.workers.console.tree import leaves
from tests.workers.commands.test_cli import rows, run

COMMANDS = [" ".join(words) for words, _ in leaves(rmq)]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples_that_it_understands(command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    for example in EXAMPLES.get(command, ()):
        assert understood(example), example


def test_examples_are_of_commands_that_exist() -> None:
    assert EXAMPLES.keys() <= set(COMMANDS)
    for lines in _WANTED.values():
        for _, line in lines:
            assert all(understood(part) for part in line.split(";")), line


def understood(line: str) -> bool:
    """Tell whether the tree has the command of a line and the command has its options; nothing is run."""
    for part in line.split("|") if "'" not in line else [line]:
        words = shlex.split(part.replace('eval "$(', "").replace(')"', ""))
        words = words[1 : words.index(">")] if ">" in words else words[1:]
        if not part.strip().startswith(("rmq", "eval")):
            continue
        context = rmq.make_context("rmq", [*words[:0]], resilient_parsing=True)
        command = rmq
        while hasattr(command, "commands") and words:
            found = command.get_command(context, words.pop(0))
            if found is None:
                return False
            command = found  # type: ignore[assignment]
        command.make_context(command.name, words, resilient_parsing=True)
    return True


def test_config_shows_where_each_value_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rmq.toml").write_text('store = "./store"\n[run]\nprocesses = 3\n')
    found = rows(run("config", "run", "-o", "json", RMQ_RUN_LOG_LEVEL="debug"))
    assert [(row["option"], row["value"], row["origin"]) for row in found] == [
        ("processes", 3, "rmq.toml"),
        ("store", "./store", "rmq.toml"),
        ("log-level", "debug", "RMQ_RUN_LOG_LEVEL"),
    ]
    everything = rows(run("config", "run", "--all", "-o", "json"))
    assert {"option": "shutdown-timeout", "command": "run", "value": "30s", "origin": "default"} in everything


def test_config_knows_the_options_of_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rmq.toml").write_text("[check]\nmin-ready = 4\n")
    found = rows(run("config", "check", "-o", "json", RMQ_CHECK_WARN="5"))
    assert [(row["option"], row["value"], row["origin"]) for row in found] == [
        ("warn", "5", "RMQ_CHECK_WARN"),
        ("min-ready", 4, "rmq.toml"),
    ]
    everything = {row["option"]: row["value"] for row in rows(run("config", "check", "--all", "-o", "json"))}
    assert (everything["disk-warn"], everything["store"]) == (0.75, None)


def test_completion_offers_commands_topics_and_groups(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    assert run("topic", "create", "orders", "offers", "--store", store).exit_code == 0
    assert run("group", "seek", "billing", "orders", "--to", "latest", "--store", store).exit_code == 0
    assert completed("rmq topic info o", store) == ["offers", "orders"]
    assert completed("rmq group lag ", store) == ["billing"]
    assert "seek" in completed("rmq group s", store)
    assert "_RMQ_COMPLETE" in run("completion", "zsh").stdout


def completed(line: str, store: str) -> list[str]:
    words = line.split(" ")
    os.environ["RMQ_STORE"] = store
    try:
        found = BashComplete(rmq, {}, "rmq", "_RMQ_COMPLETE").get_completions(words[1:-1], words[-1])
    finally:
        del os.environ["RMQ_STORE"]
    return [each.value for each in found]


def test_a_cheat_sheet_is_of_one_subject_or_of_all() -> None:
    assert run("cheat", "group").stdout.startswith("group\n")
    assert len(run("cheat").stdout.splitlines()) > 20
    json.dumps(COMMANDS)


def test_the_store_of_the_settings_is_no_table_of_the_command_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rmq.toml").write_text('store = "./store"\n')
    assert run("send", "orders", "one").exit_code == 0
    assert run("store", "verify").exit_code == 0
