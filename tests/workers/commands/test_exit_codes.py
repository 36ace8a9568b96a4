"""One table of exit codes, and every command keeps to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.admin import Admin
from rmqclient.workers.cli import rmq
from rmqclient.workers.console.parameters import StoreArgument
from rmqclient.workers.console.tree import leaves
from rmqclient.workers.exit_codes import MEANINGS, ExitCode
from tests.docs.page import REPOSITORY
from tests.workers.commands.test_cli import run

LEAVES = {leaf.words: leaf.command for leaf in leaves(rmq)}
ID = "7F0000011A2B00000000000000000001"
MISSES = [
    ("check", "--group", "nope", "--min-ready", "0"),
    ("dlq", "ls", "nope"),
    ("dlq", "ls", "billing", "--id", ID),
    ("dlq", "show", "billing", ID),
    ("dlq", "show", "nope", ID),
    ("dlq", "export", "nope"),
    ("dlq", "replay", "nope"),
    ("dlq", "replay", "billing", "--id", ID),
    ("dlq", "replay", "billing", "--key", "nope", "--dry-run"),
    ("dlq", "purge", "nope"),
    ("dlq", "purge", "billing", "--key", "nope"),
    ("group", "assignment", "nope"),
    ("group", "clone", "nope", "other"),
    ("group", "info", "nope"),
    ("group", "lag", "nope"),
    ("group", "pause", "nope"),
    ("group", "resume", "nope"),
    ("group", "rm", "nope"),
    ("group", "seek", "billing", "nope", "--to", "latest"),
    ("message", "find", "orders", "nope"),
    ("message", "find", "nope", "key"),
    ("message", "get", ID),
    ("message", "get", "0:99", "--topic", "orders"),
    ("message", "trace", ID),
    ("schedule", "cancel", ID),
    ("schedule", "ls", "--topic", "nope"),
    ("tail", "nope", "--no-follow"),
    ("topic", "info", "nope"),
    ("topic", "rm", "nope"),
    ("topic", "table", "nope"),
    ("topic", "table", "orders", "--key", "nope"),
    ("topic", "update", "nope", "--queues", "2"),
    ("tx", "commit", ID),
    ("tx", "ls", "--topic", "nope"),
    ("tx", "rollback", ID),
    ("worker", "restart", "1"),
    ("worker", "stack", "1"),
]
LISTS = [
    ("dlq", "ls"),
    ("dlq", "ls", "billing"),
    ("dlq", "replay", "billing"),
    ("group", "ls", "--where", "lag > 99"),
    ("schedule", "ls"),
    ("tx", "ls"),
    ("worker", "ls"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic with a message, and a group that has not handled it."""
    root = tmp_path_factory.mktemp("codes") / "store"
    with Producer(root) as producer, Admin(root) as admin:
        producer.create_topic("orders", 1)
        producer.send(Message("orders", b"one"))
        admin.seek("billing", "orders", "earliest")
    return root


def test_the_page_of_commands_has_the_table_of_exit_codes() -> None:
    page = (REPOSITORY / "docs/reference/commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == {int(code): said for code, said in MEANINGS.items()}
    assert MEANINGS.keys() == set(ExitCode)


@pytest.mark.parametrize("words", MISSES, ids=" ".join)
def test_what_is_not_found_is_1_and_a_line_that_says_so(words: tuple[str, ...], root: Path) -> None:
    result = run(*words, RMQ_STORE=str(root))
    assert result.exit_code == ExitCode.FAILED, result.output
    if words[0] not in ("check", "schedule"):  # these two say it in their output
        assert result.stderr.splitlines()[-1].startswith("rmq: ")


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_an_empty_list_is_0(words: tuple[str, ...], root: Path) -> None:
    assert run(*words, RMQ_STORE=str(root)).exit_code == ExitCode.OK


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_wrong_usage_is_2_and_the_last_line_says_why(words: tuple[str, ...]) -> None:
    result = run(*words, "--no-such-option")
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert result.stderr.splitlines()[-1].startswith("rmq: ")


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_of_a_store_takes_it_from_the_variable_of_all(words: tuple[str, ...], root: Path) -> None:
    for each in LEAVES[words].params:
        if each.name == "root" and words != ("bench",):
            known = isinstance(each, StoreArgument) or "RMQ_STORE" in (each.envvar or ())
            assert known or words == ("serve",), "`rmq serve` asks for it, unless it is --ephemeral"


@pytest.mark.parametrize(
    "words", [("store", "verify"), ("store", "dump"), ("store", "repair", "--dry-run"), ("check",)]
)
def test_a_directory_without_a_store_is_3(words: tuple[str, ...], tmp_path: Path, root: Path) -> None:
    assert run(*words, RMQ_STORE=str(tmp_path / "nothing")).exit_code == ExitCode.STORE_CANNOT_BE_OPENED
    assert run(*words, RMQ_STORE=str(root), RMQ_CHECK_MIN_READY="0").exit_code == ExitCode.OK


@pytest.mark.parametrize(("words", "code"), [("top --once", 1), ("events", 1), ("doctor", 1), ("check", 3)])
def test_what_only_a_directory_tells_fails_for_a_cluster_and_check_cannot_read_it(words: str, code: int) -> None:
    refused = run(*words.split(), "--store", "rocketmq://127.0.0.1:9876")
    assert (refused.exit_code, refused.stdout) == (code, ""), refused.output
    assert refused.stderr.splitlines()[-1].startswith("rmq: ")
