"""The commands of the page about the shell run, in its order, in an empty directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmqclient.workers.cli import rmq
from tests.docs.commands.lines import lines, run_here
from tests.docs.page import REPOSITORY

SHELL = "docs/operate/shell.md"
PAGE = (REPOSITORY / SHELL).read_text(encoding="utf-8")
LINES = [line.command for line in lines() if line.page == SHELL]


def test_every_command_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RMQ_STORE", str(tmp_path / "store"))
    assert len(LINES) > 20
    for line in LINES:
        run_here(line)


def test_the_table_has_commands_that_exist() -> None:
    named = re.findall(r"^\| `\w+` \| [\d. ]+ \| (.*) \|$", PAGE, re.MULTILINE)
    assert len(named) > 90
    for cell in named:
        for command in re.findall(r"`([a-z-]+(?: [a-z-]+)?)", cell):
            node: object = rmq
            context = rmq.make_context("rmq", [], resilient_parsing=True)
            for word in command.split():
                if hasattr(node, "get_command") and not word.startswith("-"):
                    node = node.get_command(context, word)
                    assert node is not None, f"{command}: {cell}"
