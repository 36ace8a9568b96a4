"""The commands of the page about the shell run, in its order, in an empty directory."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqclient.workers.cli import rmq
from tests.docs.page import REPOSITORY

PAGE = (REPOSITORY / "docs" / "operate" / "shell.md").read_text(encoding="utf-8")
LINES = [
    line
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in re.findall(r"^\$ (.+)$", block, re.MULTILINE)
]


def test_every_command_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RMQ_STORE", str(tmp_path / "store"))
    assert len(LINES) > 20
    for line in LINES:
        given = b""
        for command in re.split(r" \| ", line):
            words = shlex.split(command)
            target = words[words.index(">") + 1] if ">" in words else None
            words = words[: words.index(">")] if target else words
            assert words[0] == "rmq", line
            done = CliRunner().invoke(rmq, words[1:], input=given)
            assert done.exit_code == 0, f"{line}: {done.output}"
            given = done.stdout_bytes
            if target:
                Path(target).write_bytes(given)


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
