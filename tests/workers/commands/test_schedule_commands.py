"""``rmq schedule``: a person sees what waits for its time, and takes it back."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rmqclient import Message, Producer
from rmqclient.workers.cli import rmq
from tests.workers.supervised import APPS

HOUR = datetime.timedelta(hours=1)


def schedule(*arguments: str) -> Result:
    return CliRunner().invoke(rmq, ["schedule", *arguments])


def listed(root: Path, *arguments: str) -> list[dict[str, object]]:
    done = schedule("ls", *arguments, "--store", str(root), "-o", "json")
    assert done.exit_code == 0, done.output
    rows: list[dict[str, object]] = json.loads(done.stdout)
    return rows


@pytest.fixture
def ids(tmp_path: Path) -> list[str]:
    """Leave three messages that wait three, one and two hours, the last of them for another topic."""
    topics = ("reminders", "reminders", "mail")
    with Producer(tmp_path) as producer:
        return [
            producer.send(Message(topic, b"later"), delay=hours * HOUR).message_id
            for topic, hours in zip(topics, (3, 1, 2), strict=True)
        ]


@pytest.mark.guarantee("G37")
def test_a_person_sees_what_waits_the_next_one_first(tmp_path: Path, ids: list[str]) -> None:
    rows = listed(tmp_path)
    assert [row["message_id"] for row in rows] == [ids[1], ids[2], ids[0]]
    assert [row["topic"] for row in rows] == ["reminders", "mail", "reminders"]
    assert all(0 < 3_600 * hours - float(str(row["seconds_left"])) < 60 for hours, row in enumerate(rows, 1))
    due = datetime.datetime.fromisoformat(str(rows[0]["due"]))
    assert abs(due - datetime.datetime.now(datetime.UTC) - HOUR) < datetime.timedelta(minutes=1)
    assert [row["message_id"] for row in listed(tmp_path, "--topic", "reminders", "--limit", "1")] == [ids[1]]
    assert schedule("ls", "--topic", "other", "--store", str(tmp_path)).exit_code == 1, "no such topic"


@pytest.mark.guarantee("G37")
def test_a_person_takes_messages_back_and_is_told_which_do_not_wait(tmp_path: Path, ids: list[str]) -> None:
    done = schedule("cancel", ids[0], ids[2], "--store", str(tmp_path), "-o", "json")
    assert done.exit_code == 0, done.output
    assert [row["state"] for row in json.loads(done.stdout)] == ["cancelled", "cancelled"]
    # One that was cancelled does not wait, and an id of nothing neither; what waits is cancelled beside them
    again = schedule("cancel", ids[0], "0" * 32, ids[1], "--store", str(tmp_path), "-o", "json")
    assert again.exit_code == 1
    assert [row["state"] for row in json.loads(again.stdout)] == ["not waiting", "not waiting", "cancelled"]
    assert listed(tmp_path) == []


def test_a_person_sends_something_for_later(tmp_path: Path) -> None:
    sending = ["send", "reminders", "call back", "--store", str(tmp_path), "-o", "json"]
    assert CliRunner().invoke(rmq, [*sending, "--delay", "2h"]).exit_code == 0
    (row,) = listed(tmp_path)
    assert (row["topic"], 7_100 < float(str(row["seconds_left"])) <= 7_200) == ("reminders", True)
    both = CliRunner().invoke(rmq, [*sending, "--delay", "2h", "--delay-level", "3"])
    assert (both.exit_code, "give either --delay or --delay-level" in both.output) == (2, True)


def test_the_schedules_of_an_application_are_listed_with_their_next_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    done = schedule("crons", f"{APPS / 'scheduling.py'}:app", "-o", "json")
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert row.pop("next").endswith("Z")
    assert row == {
        "name": "second",
        "topic": "reports",
        "when": "every 0:00:01",
        "misfire_grace_s": 30,
        "coalesce": False,
    }
    chosen = schedule("crons", f"{APPS / 'scheduling.py'}:app", "--where", "name = 'first'")
    assert (chosen.exit_code, chosen.stdout) == (0, "")
