"""``rmq check`` and ``rmq doctor`` on a store with many groups: problems first, and what is well in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.admin import Admin
from rmqclient.health.report import broken
from rmqclient.workers.probe import main
from tests.workers.commands.test_cli import run

GROUPS = 107


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with 107 groups that are well, and a paused one that is behind."""
    root = tmp_path_factory.mktemp("many") / "store"
    with Producer(root) as producer, Admin(root) as admin:
        producer.create_topic("orders", 1)
        producer.send(Message("orders", b"one"))
        for number in range(GROUPS):
            admin.seek(f"group-{number:03}", "orders", "latest")
        admin.seek("billing", "orders", "earliest")
        admin.pause("billing")
    return root


@pytest.mark.parametrize(("command", "problem"), [("check", "warning"), ("doctor", "warn")])
def test_problems_come_first_and_what_is_well_is_one_line(root: Path, command: str, problem: str) -> None:
    limits = {"RMQ_CHECK_MIN_READY": "0"}
    lines = run(command, "--store", str(root), stdin=None, **limits).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [problem] * (len(lines) - 1) + ["ok"]
    assert any("lag billing" in line for line in lines[:-1])
    assert f"{GROUPS} groups" in lines[-1]
    every = run(command, "-v", "--store", str(root), stdin=None, **limits).stdout.splitlines()
    assert sum("lag group-" in line for line in every) == GROUPS


def test_findings_are_chosen_and_shaped_as_the_rows_of_every_command(root: Path) -> None:
    chosen = run("check", "--where", "check = 'lag' AND lag > 0", "-o", "json", "--store", str(root))
    assert [each["subject"] for each in json.loads(chosen.stdout)["findings"]] == ["billing"]
    shaped = run("check", "--query", "findings[?check == 'workers'].level | [0]", "--store", str(root))
    assert (json.loads(shaped.stdout), shaped.exit_code) == ("critical", 1)
    assert run("check", "-o", "csv", "--store", str(root)).stdout.startswith("check,subject,level")


def test_a_group_that_nobody_knows_is_a_miss(root: Path) -> None:
    assert run("check", "--group", "nope", "--min-ready", "0", "--store", str(root)).exit_code == 1
    assert run("check", "--group", "billing", "--min-ready", "0", "--store", str(root)).exit_code == 0


def test_the_exit_code_and_what_is_shown_are_those_of_the_findings_that_were_chosen(root: Path) -> None:
    # Given a store without workers, which is critical
    assert run("check", "--store", str(root)).exit_code == 1

    def check(where: str, form: str) -> tuple[int, str]:
        result = run("check", "--where", where, "-o", form, "--store", str(root))
        return result.exit_code, result.stdout

    # Then a finding that was not chosen counts for neither
    code, shown = check("check = 'none'", "nagios")
    assert (code, shown.startswith("RMQ OK - no finding")) == (0, True)
    code, shown = check("check = 'none'", "json")
    assert (code, json.loads(shown)) == (0, {"status": "ok", "findings": []})
    assert check("subject = 'billing'", "nagios")[0] == 1
    assert check("check = 'workers'", "nagios")[0] == 2
    assert check("check = 'workers'", "json")[0] == 1


def test_a_choice_that_has_no_finding_says_so(root: Path) -> None:
    result = run("check", "--where", "subject = 'nope'", "--store", str(root))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "subject = 'nope'" in result.stderr


def test_a_word_of_an_option_without_its_dashes_is_wrong_usage(root: Path) -> None:
    assert main(["output", "json", "--store", str(root)]) is None, "it is left to the tree"
    assert run("check", "--store", str(root), "output", "json").exit_code == 2


def test_a_terminal_of_no_width_to_speak_of_breaks_no_word() -> None:
    line = "critical  hung  hung 412 s in orders 2:7731  -> see its stack: `rmq worker stack 4711`"
    assert broken(line, 1).split() == line.split()
    assert max(map(len, broken(line, 1).splitlines())) <= 40
