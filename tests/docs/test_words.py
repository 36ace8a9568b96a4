"""What pages say of commands, errors and names is what the product has."""

from __future__ import annotations

import re
import shlex
from functools import cache
from itertools import takewhile
from pathlib import Path

import click
import pytest

import rmqclient
import rmqclient.errors
from rmqclient.workers.cli import rmq
from tests.docs.page import PAGES, REPOSITORY

DOCS = REPOSITORY / "docs"
COMMAND_PAGES = [
    page for page in PAGES if re.search(r"^\$ rmq |`rmq [a-z]", page.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("page", COMMAND_PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_command_of_a_page_exists_with_its_options(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = re.findall(r"^\$ (rmq .+)$", text, re.MULTILINE)
    lines += re.findall(r"`(rmq [a-z][^`\n]*)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    wrong = [f"{line}: {problem}" for line in lines if (problem := problem_of(line))]
    assert wrong == []


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert problem_of("rmq group lags billing") == "no command lags"
    assert problem_of("rmq group lag billing --wide") == "no option --wide"
    assert problem_of("rmq check ready --min-redy 0") == "no option --min-redy"
    assert problem_of("rmq group lag billing -o json --query '[0]'  # each queue") is None


def problem_of(line: str) -> str | None:
    """Return what is wrong with the words of one command: a name or an option that does not exist."""
    words = list(
        takewhile(
            lambda word: word not in {"|", ">", "&&", ";"}, shlex.split(line.replace("\\|", "|"), comments=True)[1:]
        )
    )
    command: click.Command = rmq
    context = rmq.make_context("rmq", [], resilient_parsing=True)
    options = options_of(command, context)
    for number, word in enumerate(words):
        if word in {"...", "…"}:
            return None
        if word.startswith("-") and not re.fullmatch(r"-\d+|-", word):
            if word.partition("=")[0] not in options:
                return f"no option {word}"
        elif isinstance(command, click.Group) and not (number and words[number - 1] in {"--store", "--config"}):
            found = command.get_command(context, word)
            if found is None:
                return f"no command {word}"
            command, options = found, options | options_of(found, context)
    return None


def options_of(command: click.Command, context: click.Context) -> set[str]:
    """Return the options of a command, as they are written."""
    own = {name for option in command.get_params(context) for name in (*option.opts, *option.secondary_opts)}
    return own | {"--store", "--config", "--help"}


def test_troubleshooting_quotes_errors_as_they_are() -> None:
    page = (DOCS / "operate" / "troubleshooting.md").read_text(encoding="utf-8")
    table = page.partition("## What an error says")[2].partition("\n## ")[0]
    quoted = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    assert len(quoted) > 10
    pieces = [piece.strip() for text in quoted for piece in text.split("…") if len(piece.strip()) > 3]
    assert [piece for piece in pieces if piece not in texts_of_the_sources()] == []


@cache
def texts_of_the_sources() -> str:
    """Return the sources with strings that go on in the next line as one text."""
    found = [
        path.read_text(encoding="utf-8")
        for top in ("store", "rmqclient", "workers")
        for path in (REPOSITORY / top).rglob("*.py")
    ]
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(found))


def test_the_reference_has_each_public_name_once() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md")))
    named = re.findall(r"^\.\. auto(?:class|function|exception):: rmqclient\.(\w+)(?:\(\))?$", pages, re.MULTILINE)
    assert sorted(named) == sorted(rmqclient.__all__)


def test_the_tree_of_errors_has_each_error() -> None:
    tree = rmqclient.errors.__doc__ or ""
    assert [name for name in rmqclient.errors.__all__ if not re.search(rf"\b{name}\b", tree)] == []
