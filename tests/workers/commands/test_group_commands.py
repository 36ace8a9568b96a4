"""``rmq group`` in this process: seeking, pausing and resuming as people write it."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import click
import pytest

from rmqclient.workers.console.parameters import position
from tests.workers.commands.test_cli import data, rows, run
from tests.workers.supervised import APPS


@pytest.fixture
def store(tmp_path: Path) -> str:
    root = str(tmp_path / "store")
    assert run("topic", "create", "orders", "--queues", "2", "--store", root).exit_code == 0
    assert run("send", "orders", "body", "--count", "10", "--store", root).exit_code == 0
    return root


def moved(*arguments: str) -> list[tuple[Any, ...]]:
    found = rows(run("group", "seek", "billing", "orders", *arguments, "-o", "json"))
    return [(row["queue_id"], row["from_offset"], row["to_offset"]) for row in found]


def lag(store: str, *fields: str) -> list[tuple[Any, ...]]:
    found = rows(run("group", "lag", "billing", "-o", "json", "--store", store))
    return [tuple(row[field] for field in fields) for row in found]


@pytest.mark.guarantee("G57")
def test_a_group_is_moved_and_a_dry_run_only_says_so(store: str) -> None:
    assert moved("--to", "latest", "--dry-run", "--store", store) == [(0, None, 5), (1, None, 5)]
    assert run("group", "lag", "billing", "--store", store).exit_code == 1
    assert moved("--to", "latest", "--store", store) == [(0, None, 5), (1, None, 5)]
    assert moved("--to", "3", "--queue", "1", "--store", store) == [(1, 5, 3)]
    assert moved("--to", "1h", "--store", store) == [(0, 5, 0), (1, 3, 0)]
    assert moved("--to", "2999-01-01T10:00Z", "--store", store) == [(0, 0, 5), (1, 0, 5)]
    assert moved("--to", "earliest", "--store", store) == [(0, 5, 0), (1, 5, 0)]
    assert lag(store, "queue_id", "committed_offset", "lag", "state", "member") == [
        (0, 0, 5, "no owner", None),
        (1, 0, 5, "no owner", None),
    ]
    assert data(run("group", "ls", "-o", "json", "--query", "[].[group, lag]", "--store", store)) == [["billing", 10]]


def test_a_group_is_paused_and_resumed(store: str) -> None:
    moved("--to", "earliest", "--store", store)
    paused = rows(run("group", "pause", "billing", "orders", "--queue", "1", "-o", "json", "--store", store))
    assert [(row["queue_id"], row["state"]) for row in paused] == [(1, "paused")]
    assert lag(store, "queue_id", "state") == [(0, "no owner"), (1, "paused")], "the store was closed in between"
    assert [row["state"] for row in rows(run("group", "pause", "billing", "-o", "json", "--store", store))] == [
        "paused",
        "paused",
    ]
    resumed = rows(run("group", "resume", "billing", "-o", "json", "--store", store))
    assert [(row["queue_id"], row["state"]) for row in resumed] == [(0, "no owner"), (1, "no owner")]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["seek", "billing", "orders"], 2, "give one of --to, --shift and --to-file"),
        (["seek", "billing", "orders", "--to", "soon"], 2, "write earliest, latest, a queue offset"),
        (["seek", "billing", "orders", "--to", "6"], 1, "offset 6: queue 0 of 'orders' has 0 to 5"),
        (["seek", "billing", "nothing", "--to", "0"], 1, "topic 'nothing' does not exist"),
        (["seek", "billing", "orders", "--to", "0", "--queue", "2"], 1, "queue 2 of topic 'orders' does not exist"),
        (["seek", "bill|ing", "orders", "--to", "0"], 2, "group 'bill|ing'"),
        (["pause", "billing"], 1, "group 'billing' never consumed anything"),
        (["resume", "billing", "orders"], 1, "group 'billing' never consumed topic 'orders'"),
        (["pause", "billing", "--queue", "1"], 2, "--queue belongs to a topic"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_said_on_one_line(store: str, arguments: list[str], code: int, words: str) -> None:
    result = run("group", *arguments, "--store", store)
    assert result.exit_code == code
    assert result.stdout == ""
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_positions_as_people_write_them() -> None:
    assert [position(text) for text in ("earliest", "latest", "0", "1234")] == ["earliest", "latest", 0, 1_234]
    at = position("2026-11-20T10:00Z")
    assert at == datetime.datetime(2026, 11, 20, 10, tzinfo=datetime.UTC)
    ago = position("2h")
    assert isinstance(ago, datetime.datetime)
    assert ago.timestamp() == pytest.approx(time.time() - 7_200, abs=5)
    for text in ("", "begin", "-5", "1e3", "2026-13-01"):
        with pytest.raises(click.BadParameter, match="write earliest, latest, a queue offset, 2h"):
            position(text)


@pytest.mark.parametrize("name", ["a b", "a|b", "x" * 126])
def test_a_member_name_that_cannot_be_one_is_wrong_usage(tmp_path: Path, name: str) -> None:
    result = run("run", f"{APPS / 'broadcasting.py'}:app", "--store", str(tmp_path), "--member-name", name)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"rmq: member '{name[:20]}")


def test_a_group_is_shifted_and_put_to_places_in_a_file(store: str, tmp_path: Path) -> None:
    assert moved("--to", "3", "--store", store) == [(0, None, 3), (1, None, 3)]
    assert moved("--shift", "-2", "--store", store) == [(0, 3, 1), (1, 3, 1)]
    assert moved("--shift", "100", "--queue", "0", "--store", store) == [(0, 1, 5)]

    # What lag printed can be sought again, and so can lines that a person writes
    saved = tmp_path / "places"
    saved.write_text(run("group", "lag", "billing", "-o", "jsonl", "--store", store).stdout)
    assert moved("--to", "latest", "--store", store) == [(0, 5, 5), (1, 1, 5)]
    back = rows(run("group", "seek", "billing", "--to-file", str(saved), "-o", "json", "--store", store))
    assert [(row["queue_id"], row["to_offset"]) for row in back] == [(0, 5), (1, 1)]
    saved.write_text("orders 1 4\n\n")
    assert lag(store, "committed_offset") == [(5,), (1,)]
    run("group", "seek", "billing", "--to-file", str(saved), "--store", store)
    assert lag(store, "committed_offset") == [(5,), (4,)]
    saved.write_text("orders one 4")
    wrong = run("group", "seek", "billing", "--to-file", str(saved), "--store", store)
    assert (wrong.exit_code, "line 1, 'orders one 4': write TOPIC QUEUE OFFSET" in wrong.stderr) == (2, True)


def test_a_group_is_cloned(store: str) -> None:
    moved("--to", "3", "--store", store)
    found = rows(run("group", "clone", "billing", "copies", "-o", "json", "--store", store))
    assert [(row["group"], row["queue_id"], row["to_offset"]) for row in found] == [("copies", 0, 3), ("copies", 1, 3)]
    assert run("group", "clone", "nobody", "copies", "--store", store).exit_code == 1
    listed = rows(run("group", "ls", "-o", "json", "--store", store))
    assert [(row["group"], row["lag"], row["state"]) for row in listed] == [
        ("billing", 4, "no members"),
        ("copies", 4, "no members"),
    ]


def test_a_topic_gets_more_queues_and_is_removed(store: str) -> None:
    again = run("topic", "create", "orders", "--queues", "8", "--store", store)
    assert (again.exit_code, "was there, with 2 queues" in again.stderr) == (1, True)
    more = run(
        "topic", "update", "orders", "--queues", "8", "-o", "json", "--query", "length(queues)", "--store", store
    )
    assert data(more) == 8
    assert "cannot be taken away" in run("topic", "update", "orders", "--queues", "1", "--store", store).stderr
    assert run("topic", "create", "mails", "--store", store).exit_code == 0
    assert run("topic", "rm", "orders", "--store", store).stderr == "orders: forgotten, with 10 messages\n"
    assert data(run("topic", "ls", "-o", "json", "--query", "[].topic", "--store", store)) == ["mails"]


def test_a_group_is_forgotten_after_it_was_shown_where_it_stood(store: str) -> None:
    moved("--to", "3", "--store", store)
    assert len(rows(run("group", "rm", "billing", "--dry-run", "-o", "json", "--store", store))) == 2
    assert lag(store, "committed_offset") == [(3,), (3,)]
    forgotten = rows(run("group", "rm", "billing", "--yes", "-o", "json", "--store", store))
    assert [(row["committed_offset"], row["lag"]) for row in forgotten] == [(3, 2), (3, 2)]
    assert run("group", "lag", "billing", "--store", store).exit_code == 1
    assert data(run("group", "ls", "-o", "json", "--store", store)) == []
