"""``rmq topic table``: the present values, as text, JSON and whatever a query makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rmqclient import Message, Producer
from rmqclient.workers.cli import rmq


def topic_table(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(rmq, ["topic", "table", *arguments, "--store", str(root)])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with Producer(tmp_path / "store") as producer:
        for key, value in [
            ("b", {"bid": 1}),
            ("a", "text"),
            ("c", b"\xff"),
            ("b", {"bid": 2}),
            ("d", "gone"),
            ("d", b""),
            ("e", "\x1b[31m"),
        ]:
            producer.send(Message("prices", value, keys=key), key)
    return tmp_path / "store"


@pytest.mark.guarantee("G42")
def test_every_key_is_shown_with_its_last_value(root: Path) -> None:
    assert json.loads(topic_table(root, "prices", "-o", "json").stdout) == [
        {"key": "a", "value": "text"},
        {"key": "b", "value": {"bid": 2}},
        {"key": "c", "value": None, "value_base64": "/w=="},
        {"key": "e", "value": "\x1b[31m"},
    ]
    lines = topic_table(root, "prices").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["key", "value"],
        ["a", "text"],
        ["b", '{"bid":2}'],
        ["c", "/w=="],
        ["e", "\\x1b[31m"],
    ]


def test_some_keys_and_a_query(root: Path) -> None:
    shown = topic_table(root, "prices", "--key", "b", "--key", "a", "-o", "jsonl").stdout
    assert [json.loads(line)["key"] for line in shown.splitlines()] == ["b", "a"]
    assert topic_table(root, "prices", "--key", "b", "--query", "[0].value.bid").stdout == "2\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("prices", "--key", "d"), "topic 'prices' has no key 'd'"),
        (("nothing",), "topic 'nothing' does not exist"),
        (("prices", "--query", "["), "is not JMESPath"),
    ],
)
def test_what_is_not_there_is_said_in_a_line(root: Path, arguments: tuple[str, ...], words: str) -> None:
    result = topic_table(root, *arguments)
    assert result.exit_code != 0
    assert words in result.output
    assert "Traceback" not in result.output
