"""Tables for people: they fit the terminal, names keep both ends, ages are words; and watching a list."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rmqclient.workers.console.layout import shortened, table, width_of
from rmqclient.workers.console.where import as_properties
from tests.docs.sessions.terminal import Terminal
from tests.workers.commands.test_cli import run
from tests.workers.supervised import COMMAND, environment

NAMES = {"group": "billing-of-the-northern-region", "topic": "orders-of-the-northern-region"}


def test_a_name_keeps_both_its_ends_and_words_keep_their_beginning() -> None:
    assert shortened("billing-north-01", 9) == "bill…h-01"
    assert shortened("a flush failed", 9) == "a flush …"
    assert shortened("世界世界", 5) == "世…界"
    assert all(width_of(shortened("世界-orders-世界", width)) <= width for width in range(1, 20))


def test_ages_and_times_are_words_and_stay_numbers_for_programs() -> None:
    head, (line,) = table([{"pid": 7, "beat_age_ms": 41_234.5, "oldest_s": 7_200.0, "message_age_ms": None}], None)
    assert head[-1].split() == ["pid", "age", "oldest", "age"]
    assert line.split() == ["7", "41", "s", "2.0", "h", "-"]
    assert as_properties({"beat_age_ms": 41_234.5, "owner": None}) == {"beat_age_ms": "41234"}


@pytest.mark.parametrize("width", [44, 60, 80])
def test_a_table_fits_and_words_of_the_last_column_are_whole(width: int) -> None:
    remedy = "see its stack with rmq worker stack and then end it"
    head, lines = table([{**NAMES, "lag": 12, "epoch": None, "remedy": remedy}], width)
    assert max(map(width_of, [*head, *lines])) <= width
    assert "12" in lines[0]
    assert " ".join(" ".join(lines).split()).count("…") <= 2
    assert set(remedy.split()) <= set(" ".join(lines).split())


def test_rows_that_no_line_has_space_for_are_lines_of_names_and_values() -> None:
    head, lines = table([{f"number_{each}": 10**9 + each for each in range(12)}], 40)
    assert head == []
    assert lines[0].split() == ["number", "0", "1000000000"]


def test_a_list_is_shown_again_until_ctrl_c(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    assert run("topic", "create", "orders", "--store", store).exit_code == 0
    line = f"exec {' '.join(COMMAND)} topic ls -w --interval 50ms --store {store}"
    with Terminal(line, tmp_path, environment(TERM="xterm")) as watching:
        watching.wait_for(lambda printed: "orders" in printed)
        assert run("topic", "create", "mails", "--store", store).exit_code == 0
        watching.wait_for(lambda printed: "mails" in printed)
        assert "mails" in watching.printed
        watching.interrupt()
        deadline = time.monotonic() + 30
        assert watching.end() == 130
        assert time.monotonic() < deadline
