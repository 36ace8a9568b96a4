"""``rmq store archive``: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from rmqclient.archive.view import ArchivedView
from rmqclient.store import open_store
from rmqclient.store.inspect.view import LocalView
from rmqclient.workers.cli import rmq
from tests.support.archived import force, more, rows
from tests.support.written import SMALL, written_store


def run(*arguments: object) -> Result:
    return CliRunner().invoke(rmq, ["store", "archive", *map(str, arguments)], env={"RMQ_STORE": None})


def test_it_says_what_was_uploaded_and_what_the_archive_holds(tmp_path: Path) -> None:
    root = written_store(tmp_path / "store")
    done = run("--store", root, "--to", tmp_path / "archive", "-o", "json")
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)
    archived = ArchivedView(str(tmp_path / "archive"))
    assert row["url"] == str(tmp_path / "archive")
    assert (row["begin"], row["end"]) == (archived.log_range().start, archived.log_range().stop)
    assert row["log_files"] * SMALL.commit_log_file_bytes == row["end"] > 0
    assert (row["queues"], row["lost_bytes"], row["found_files"]) == (3, 0, 0)
    assert rows(archived) == rows(LocalView(root), log_end=row["end"])
    # Each file on a line of its own, for people
    lines = done.stderr.splitlines()
    assert f"commitlog/{0:020d}  36,864 bytes" in lines
    assert len(lines) == row["log_files"] + row["queue_files"] + row["renewed_files"]
    # And the second time nothing
    again = run("--store", root, "--to", tmp_path / "archive", "-o", "json")
    assert (again.stderr, json.loads(again.stdout)["uploaded_bytes"]) == ("", 0)
    assert run("--store", root, "--to", tmp_path / "archive").stdout.split()[:2] == ["log", "queue"], "a head of words"


def test_it_fails_when_retention_was_faster_and_only_that_time(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as store:
        more(store)
        assert run("--store", store.root, "--to", tmp_path / "archive").exit_code == 0
        more(store)
        force(store, keep=2)
        done = run("--store", store.root, "--to", tmp_path / "archive", "-o", "json")
        assert done.exit_code == 1
        lost = json.loads(done.stdout)["lost_bytes"]
        assert lost > 0
        assert f"bytes {store.log_files.bases()[0] - lost} to {store.log_files.bases()[0]} of the log" in done.stderr
        assert run("--store", store.root, "--to", tmp_path / "archive").exit_code == 0


def test_what_cannot_be_done_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    root = written_store(tmp_path / "store")
    for code, arguments in (
        (3, ("--store", tmp_path / "none", "--to", tmp_path / "archive")),
        (1, ("--store", root, "--to", root / "inside")),
        (1, ("--store", root, "--to", "s3://key:hush@bucket/x?colour=red")),
        (2, ("--store", root, "--to", tmp_path / "archive", "--option", "no-value")),
        (2, ("--store", root)),
    ):
        done = run(*arguments)
        assert done.exit_code == code, done.output
        assert "hush" not in done.output
        assert done.stdout == ""
        if code != 2:
            assert len(done.stderr.splitlines()) == 1
            assert done.stderr.startswith("rmq: ")
