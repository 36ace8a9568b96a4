"""Data on standard output: three formats and a query."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from rmqclient.workers.console.output import Output

ROWS: list[dict[str, Any]] = [
    {"topic": "orders", "lag": 12, "owner": None, "tags": ["a", "b"]},
    {"topic": "mails", "lag": 3, "owner": "x", "tags": []},
]


def test_a_table_has_the_keys_as_its_head_and_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table").write([*ROWS, {"topic": "t" * 300, "lag": 0, "owner": None, "tags": []}])
    head, first, *_, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["topic", "lag", "owner", "tags"]
    assert first.split() == ["orders", "12", "-", "a,", "b"]
    assert "t" * 300 in last


def test_an_empty_table_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table").write([])
    assert capsys.readouterr().out == ""


def test_no_colour_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table").write(ROWS)
    assert "\x1b" not in capsys.readouterr().out


def test_no_colour_when_nobody_wants_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    Output("table").write(ROWS)
    assert "\x1b[3" not in capsys.readouterr().out


def test_json_is_one_document_and_json_lines_are_many(capsys: pytest.CaptureFixture[str]) -> None:
    Output("json").write(ROWS)
    assert json.loads(capsys.readouterr().out) == ROWS
    Output("jsonl").write(ROWS)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_the_table_of_one_object_can_be_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table").write({"name": "x", "parts": ROWS}, rows=ROWS)
    assert capsys.readouterr().out.startswith("topic")


def test_a_query_selects_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table", "[?lag > `5`].topic").write(ROWS)
    assert capsys.readouterr().out == "orders\n"
    Output("jsonl", "[].lag").write(ROWS)
    assert capsys.readouterr().out == "12\n3\n"
    Output("json", "[0].nothing").write(ROWS)
    assert capsys.readouterr().out == "null\n"


def test_a_query_that_is_none_is_a_usage_error() -> None:
    with pytest.raises(click.BadParameter, match="not JMESPath"):
        Output("json", "[?").write(ROWS)
