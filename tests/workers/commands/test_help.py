"""Help, cheat sheets, settings and completion of every command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
import pytest

from rmqclient.workers.cli import rmq
from rmqclient.workers.commands.cheat import _WANTED, EXAMPLES
from rmqclient.workers.console.tree import leaves
from tests.workers.commands.test_cli import rows, run

COMMANDS = [" ".join(words) for words, _ in leaves(rmq)]


NOUNS = [name for name, command in rmq.commands.items() if isinstance(command, click.Group)]


@pytest.mark.parametrize("command", [*COMMANDS, *NOUNS])
def test_every_command_has_help_with_examples_that_it_understands(command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert result.stdout.count("Examples:") == 1
    assert "\\b" not in result.stdout
    for example in EXAMPLES.get(command, ()):
        assert understood(example), example


@pytest.mark.parametrize("noun", ["", *NOUNS])
def test_a_list_of_commands_cuts_no_description(noun: str) -> None:
    listed = run(*noun.split(), "--help").stdout.partition("Commands:")[2].partition("Exit codes:")[0]
    assert "..." not in listed.partition("Examples:")[0]


@pytest.mark.parametrize("words", [leaf.words for leaf in leaves(rmq)], ids=" ".join)
def test_usage_shows_in_brackets_exactly_what_may_be_left_out(words: tuple[str, ...]) -> None:
    command = {leaf.words: leaf.command for leaf in leaves(rmq)}[words]
    context = click.Context(command)
    for each in command.params:
        if isinstance(each, click.Argument):
            assert each.make_metavar(context).startswith("[") is not each.required, each.name


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
