"""Where a value comes from: the command line, a variable, the file, the default; and names that people write."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest

from rmqclient.workers.cli import rmq
from rmqclient.workers.console.tree import leaves, options_of, variables
from tests.workers.commands.test_cli import data, rows, run
from tests.workers.supervised import COMMAND, environment


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("flag", "variable", "file"):
        assert run("topic", "create", name, "--store", str(tmp_path / name)).exit_code == 0
    return tmp_path


def topics(*arguments: str, **given: str) -> object:
    return data(run(*arguments, "-o", "json", "--query", "[].topic", stdin=None, **given))


def test_the_command_line_is_stronger_than_a_variable_and_that_than_the_file(here: Path) -> None:
    (here / "rmq.toml").write_text('store = "file"\n')
    assert topics("topic", "ls") == ["file"]
    assert topics("topic", "ls", RMQ_STORE="variable") == ["variable"]
    assert topics("topic", "ls", RMQ_TOPIC_LS_STORE="flag", RMQ_STORE="variable") == ["flag"]
    assert topics("--store", "flag", "topic", "ls", RMQ_STORE="variable") == ["flag"]
    assert topics("topic", "ls", "--store", "flag", RMQ_STORE="variable") == ["flag"]


def test_a_project_file_above_is_found_and_a_file_can_be_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "pyproject.toml").write_text('[tool.rmq]\nstore = "./file"\n[tool.rmq.topic.ls]\noutput = "csv"\n')
    (here / "other.toml").write_text('store = "flag"\n')
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    assert run("topic", "ls").stdout == "topic,queues,messages\nfile,4,0\n"
    assert topics("--config", "../other.toml", "topic", "ls") == ["flag"]
    assert topics("topic", "ls", RMQ_CONFIG="../other.toml") == ["flag"]
    assert run("check", "--min-ready", "0").exit_code == 0


@pytest.mark.parametrize("text", ["store = ", "\xff"])
def test_a_file_that_is_no_toml_is_wrong_usage(here: Path, text: str) -> None:
    (here / "rmq.toml").write_bytes(text.encode("latin-1"))
    for command in (["topic", "ls"], ["check"]):
        result = run(*command)
        assert (result.exit_code, "rmq.toml is not TOML" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("variable", "command", "meant"),
    [
        ("RMQ_TOPIC_LS_OUTPTU", ("topic", "ls"), "RMQ_TOPIC_LS_OUTPUT"),
        ("RMQ_TOPIC_ELSE", ("topic", "ls"), ""),
        ("RMQ_STROE", ("topic", "ls"), "RMQ_STORE"),
        ("RMQ_CHECK_WRAN", ("check",), "RMQ_CHECK_WARN"),
        ("RMQ_STROE", ("check",), "RMQ_STORE"),
        ("RMQ_RUN_PROCESES", ("run", "nothing:app"), "RMQ_RUN_PROCESSES"),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_variable_that_no_option_reads_is_named_with_the_one_that_is_meant(
    variable: str, command: tuple[str, ...], meant: str
) -> None:
    result = run(*command, "--store", "file", stdin=None, **{variable: "4"})
    (line,) = [each for each in result.stderr.splitlines() if variable in each]
    assert line.endswith(f"is {meant} meant?" if meant else variable)


@pytest.mark.parametrize(
    "variable", ["RMQ_TOPIC_SERVICE_HOST", "RMQ_PORT", "RMQ_TOPIC_PORT_80_TCP_ADDR", "RMQ_RUN_PROCESES"]
)
@pytest.mark.usefixtures("here")
def test_variables_of_other_programs_and_commands_are_not(variable: str) -> None:
    assert not run("topic", "ls", "--store", "file", stdin=None, **{variable: "4"}).stderr


def test_what_the_file_has_and_rmq_has_not_is_named(here: Path) -> None:
    (here / "rmq.toml").write_text('store = "./file"\n[run]\nproceses = 4\n[topic.ls]\noutput = "csv"\n')
    assert run("topic", "ls").exit_code == 0, "the table of another command"
    result = run("config")
    assert (result.exit_code, "run.proceses" in result.stderr) == (2, True)
    (here / "rmq.toml").write_text('strore = "./file"\n[runn]\nx = 1\n')
    result = run("topic", "ls")
    assert (result.exit_code, "strore, runn" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "command", "told"),
    [
        ("store = 5", ["topic", "ls"], "store = 5"),
        ("store = 5", ["check"], "store = 5"),
        ('[topic.ls]\noutput = ["json"]', ["topic", "ls"], "topic.ls.output = ['json']"),
        ("[run]\nprocesses = true", ["run", "shop:app"], "run.processes = True"),
        ("[run]\nprocesses = [1]", ["run", "shop:app"], "run.processes = [1]"),
        ("[run]\ngroup = [[1]]", ["run", "shop:app"], "run.group = [1]"),
        ("[check]\nnonsense = 1", ["check"], "check.nonsense"),
        ("[check]\nnonsense = 1", ["doctor", "--store", "file"], "check.nonsense"),
        ("check = 5", ["check"], "check"),
    ],
)
def test_a_value_that_no_option_takes_is_wrong_usage(here: Path, text: str, command: list[str], told: str) -> None:
    (here / "rmq.toml").write_text(text)
    result = run(*command)
    assert (result.exit_code, told in result.stderr) == (2, True)


def test_the_file_says_one_group_or_several(here: Path) -> None:
    (here / "rmq.toml").write_text('[send]\nkey = "a"\nproperty = ["b=1", "c=2"]\n')
    assert run("send", "orders", "x", "--store", "file").exit_code == 0
    (found,) = rows(run("tail", "orders", "--from", "earliest", "--no-follow", "-o", "json", "--store", "file"))
    assert found["keys"] == ["a"]
    assert (found["properties"]["b"], found["properties"]["c"]) == ("1", "2")


def test_doctor_judges_by_the_limits_of_check_in_the_file(here: Path) -> None:
    (here / "rmq.toml").write_text("[check]\ndisk-warn = 0\n")
    found = rows(run("doctor", "--store", "file", "-o", "json"))
    assert [row["level"] for row in found if row["subject"] == "store"] == ["warn"]


def test_without_a_store_it_says_how_to_name_one(here: Path) -> None:
    for command in (["topic", "ls"], ["check"]):
        result = run(*command)
        assert result.exit_code == 2
        assert 'give --store DIR, set RMQ_STORE, or write store = "./store" into rmq.toml' in result.stderr


def test_every_option_is_the_variable_that_its_name_says() -> None:
    for words, command in leaves(rmq):
        for option in options_of(command):
            assert option.envvar == variables(words, option)
            name = max(option.opts, key=len).lstrip("-").upper().replace("-", "_")
            assert option.envvar[0] == "_".join(["RMQ", *(word.upper().replace("-", "_") for word in words), name])
            assert option.show_envvar


def test_other_usual_names_are_understood(here: Path) -> None:
    assert topics("topic", "list", RMQ_STORE="file") == ["file"]
    assert "no message of file" in run("msg", "find", "file", "7", RMQ_STORE="file").stderr
    assert run("topic", "describe", "file", RMQ_STORE="file").exit_code == 0


def test_an_empty_list_is_a_note_for_a_person_and_an_empty_list_for_a_program(here: Path) -> None:
    for command in (["group", "ls"], ["tx", "ls"], ["dlq", "ls"], ["schedule", "ls"], ["worker", "ls"]):
        result = run(*command, RMQ_STORE="file")
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr.startswith("no ")
        assert data(run(*command, "-o", "json", RMQ_STORE="file")) == []


APP = """
from rmqclient import App

app = App({own})


@app.handler("orders", group="billing")
def handle(message): ...
"""


@pytest.mark.parametrize(
    ("own", "arguments", "variables", "file", "used"),
    [
        ("'code'", ["--store", "flag"], {"RMQ_RUN_STORE": "own-variable", "RMQ_STORE": "variable"}, "", "flag"),
        ("'code'", [], {"RMQ_RUN_STORE": "own-variable", "RMQ_STORE": "variable"}, "", "own-variable"),
        ("'code'", [], {}, "store = 'file'\n[run]\nstore = 'own-file'", "own-file"),
        ("'code'", [], {"RMQ_STORE": "variable"}, "store = 'file'", "code"),
        ("'code'", [], {}, "store = 'file'", "code"),
        ("", [], {"RMQ_STORE": "variable"}, "store = 'file'", "variable"),
        ("", [], {}, "store = 'file'", "file"),
        ("", [], {}, "", None),
    ],
)
def test_run_takes_what_is_said_of_it_then_what_the_application_says_then_what_is_said_of_all(
    here: Path, own: str, arguments: list[str], variables: dict[str, str], file: str, used: str | None
) -> None:
    (here / "shop.py").write_text(APP.format(own=own))
    (here / "rmq.toml").write_text(file)
    command = [*COMMAND, "run", "shop.py:app", "--processes", "1", *arguments]
    with subprocess.Popen(command, cwd=here, env=environment(**variables), stderr=-1, text=True) as process:
        assert process.stderr is not None
        lines = list(itertools.takewhile(lambda line: "Ctrl-C stops" not in line, process.stderr))
        process.terminate()
    said = [line for line in lines if line.startswith("store ")]
    assert [Path(line.split()[1]).name for line in said] == ([] if used is None else [used])
    ignored = [line for line in lines if "is not used" in line]
    assert bool(ignored) is (used == "code"), lines
