"""Every command that prints a table, at 80 columns: no line is longer, and no word is broken."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from rmqclient import Message, Producer
from rmqclient.admin import Admin
from rmqclient.codecs import encode_body
from rmqclient.store import open_store
from rmqclient.workers.cli import rmq
from rmqclient.workers.console import terminal
from rmqclient.workers.console.layout import width_of
from rmqclient.workers.console.tree import leaves
from tests.workers.commands.test_cli import run

LONG = "a-topic-with-a-name-as-long-as-those-that-people-give-them"
GROUP = "a-group-with-a-name-as-long-as-those-that-people-give-them"

SHOWN = [
    ("check",),
    ("check", "-o", "table"),
    ("check", "-v"),
    ("config", "--all"),
    ("dlq", "ls"),
    ("dlq", "ls", GROUP),
    ("dlq", "purge", GROUP, "--dry-run"),
    ("dlq", "replay", GROUP, "--dry-run"),
    ("doctor",),
    ("doctor", "-v"),
    ("events",),
    ("group", "assignment", GROUP),
    ("group", "clone", GROUP, "other", "--dry-run"),
    ("group", "info", GROUP),
    ("group", "lag", GROUP),
    ("group", "ls"),
    ("group", "pause", GROUP),
    ("group", "resume", GROUP),
    ("group", "rm", "idle-000", "--dry-run"),
    ("group", "seek", GROUP, LONG, "--to", "latest", "--dry-run"),
    ("message", "decode", "7F0000011A2B00000000000000000001"),
    ("message", "trace", "0:0", "--topic", LONG),
    ("schedule", "ls"),
    ("store", "clean"),
    ("topic", "create", LONG),
    ("topic", "info", LONG),
    ("topic", "ls"),
    ("topic", "table", LONG),
    ("topic", "update", LONG, "--queues", "5"),
    ("tx", "ls"),
    ("worker", "ls"),
]
OTHERWISE = {
    "bench": "measures for seconds; its two rows have four numbers",
    "dlq show": "a page of lines, with bodies and tracebacks as they are",
    "message find": "a line for each message, with its body as it is",
    "message get": "a page of lines, with the body as it is",
    "replica status": "needs a replica; its own test shows it",
    "replica promote": "needs a replica; one row",
    "replica rejoin": "needs a replica; one row",
    "schedule cancel": "two columns, of which one is an id",
    "schedule crons": "needs an application",
    "send": "one row for a message",
    "sql": "needs DuckDB; its columns are those of the query",
    "store archive": "needs an archive; one row",
    "tail": "a line for each message, with its body as it is",
    "top": "has a test of its own",
    "tx commit": "needs an undecided transaction; rows as in tx ls",
    "tx rollback": "needs an undecided transaction; rows as in tx ls",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Long names, wide characters, control characters, and many rows."""
    root = tmp_path_factory.mktemp("eighty") / "store"
    with Producer(root) as producer, Admin(root) as admin:
        for topic in (LONG, *(f"topic-{number:03}" for number in range(30))):
            producer.create_topic(topic, 4)
        for number in range(20):
            body = "世界 grüße \x1b[31m\n".encode() * 20
            producer.send(Message(LONG, body, keys=[f"键-{number}"], tags="bezahlt"))
        producer.send(Message(LONG, b"later"), delay=3_600)
        for number in range(30):
            admin.seek(f"idle-{number:03}", "topic-000", "latest")
        admin.seek(GROUP, LONG, "earliest")
        admin.pause(GROUP, reason="the invoices of a year are written again, and nobody may get one twice")
    with open_store(root) as store:
        letters = store.appenders.make(lambda topic: store.topics.create(topic, 1), encode_body)
        for _ in range(5):
            letters.append(Message(f"%DLQ%{GROUP}", b"dead", keys=["键-with-a-long-key-of-a-letter"]))
    return root


def test_every_command_that_prints_a_table_is_shown_here_or_says_why_not() -> None:
    with_tables = {
        " ".join(words)
        for words, command in leaves(rmq)
        if words[0] != "pipeline"  # of Spark; its tests show them
        for each in command.params
        if each.name == "output" and isinstance(each.type, click.Choice) and "table" in each.type.choices
    }
    shown = {" ".join(words) for words in SHOWN}
    missing = {name for name in with_tables if not any(f"{line} ".startswith(f"{name} ") for line in shown)}
    assert missing == OTHERWISE.keys() & with_tables
    assert OTHERWISE.keys() <= with_tables


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_no_line_is_broken_at_80_columns(words: tuple[str, ...], root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(*words, RMQ_STORE=str(root))
    monkeypatch.setattr(terminal, "columns", lambda: 80)
    shown = run(*words, RMQ_STORE=str(root))
    assert shown.exit_code == whole.exit_code
    assert shown.stdout or "no " in shown.stderr
    for line in shown.stdout.splitlines():
        assert width_of(line) <= 80, line
        assert line.isprintable(), line
    known = {word for word in whole.stdout.split() if not re.search(r"\d", word)}
    cut = [word for word in shown.stdout.split() if not re.search(r"\d|…", word) and word not in known]
    assert cut == [], "a word is whole, or has an ellipsis"
