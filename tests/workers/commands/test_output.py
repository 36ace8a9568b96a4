"""Data on standard output: three formats and a query."""

from __future__ import annotations

import json
import os
import pty
import termios
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click
import pytest

from rmqclient.workers.console import terminal
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.watching import _written

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


def test_a_condition_compares_every_length_of_time_with_whole_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"oldest_s": 7199.7, "beat_age_ms": 4999.6, "seconds_left": 12.3, "used_ratio": 0.25}
    for where in ("oldest_s = 7200", "beat_age_ms >= 5000", "seconds_left < 7200", "used_ratio < 0.5"):
        Output("jsonl", where=where).write([row])
        assert json.loads(capsys.readouterr().out) == row, where


def test_a_list_of_which_no_row_is_chosen_is_not_said_to_be_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert not Output("table", where="lag > 99").write(ROWS, nothing="no topics yet")
    shown = capsys.readouterr()
    assert (shown.out, "lag > 99" in shown.err, "no topics yet" in shown.err) == ("", True, False)
    Output("table", where="lag > 99").write([], nothing="no topics yet")
    assert capsys.readouterr().err == "no topics yet\n"


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_column_that_no_row_has_is_named(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    Output(form, where="lagg > 1 OR lag = 12").write(ROWS)
    shown = capsys.readouterr().err
    assert "lagg" in shown
    assert "owner" in shown, "the columns that there are"


def test_rows_are_counted_after_they_are_chosen_and_no_more_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        for lag in range(1_000):
            assert lag <= 11
            yield {"lag": lag}

    assert Output("jsonl", where="lag > 9").write(rows(), limit=2)
    assert capsys.readouterr().out == '{"lag":10}\n{"lag":11}\n'


def test_a_table_shows_lines_of_the_rows_that_were_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table", where="lag = 3").write(ROWS, line=lambda row: {"name": row["topic"].upper()})
    assert capsys.readouterr().out.split() == ["name", "MAILS"]


def test_what_is_shown_again_and_again_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    monkeypatch.delenv("COLUMNS", raising=False)
    with os.fdopen(slave, "w") as drawn, closing(os.fdopen(master)):
        termios.tcsetwinsize(slave, (24, 133))
        monkeypatch.setattr("sys.stdout", drawn)
        assert _written(lambda: print(terminal.columns())) == ["133"]
