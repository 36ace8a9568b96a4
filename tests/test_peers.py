"""The comparison with the peers: one that needs nothing goes through all of it, and every result becomes a page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.machine import Machine
from benchmarks.measure import Samples, Size
from benchmarks.peers import environment, page, run
from benchmarks.peers.__main__ import main
from benchmarks.peers.peer import Level, Promise, Running
from benchmarks.peers.queues.rmq import Local
from benchmarks.peers.queues.sqlite import Sqlite
from benchmarks.peers.result import Result, Row, read, write
from benchmarks.peers.workloads import backlog, commits, consuming, footprint, latency, sending

SINGLE = f"{sending.SINGLE}, 100 B"


@pytest.mark.sweep
def test_a_peer_that_needs_nothing_is_measured_written_and_read(tmp_path: Path) -> None:
    working, path = tmp_path / "working", tmp_path / "peers.json"
    working.mkdir()

    result = run.run([Sqlite("NORMAL")], Size.SMALLEST, 1, working, print)
    write(result, path)
    page.write(read(path), tmp_path / "peers.md")

    (row,) = result.rows
    assert (row.failures, row.not_measured) == ({}, "")
    wanted = (footprint.FIRST, sending.SINGLE, sending.MANY, sending.DISK, consuming.CONSUMED, latency.LATENCY)
    for name in (*wanted, backlog.DRAINED, backlog.GROWN):
        assert any(figure.case.startswith(name) for figure in result.figures), name
    assert "SQLite, synchronous=NORMAL" in (tmp_path / "peers" / "send.svg").read_text(encoding="utf-8")
    assert list(working.iterdir()) == []


@pytest.mark.sweep
def test_sixteen_senders_commit_to_a_peer_that_flushes_and_the_best_of_all_is_the_target(tmp_path: Path) -> None:
    result = run.run([Sqlite("FULL"), Local(sync=True)], Size.SMALLEST, 1, tmp_path, print)
    page.write(result, tmp_path / "peers.md")
    assert [row.failures for row in result.rows] == [{}, {}]
    text = (tmp_path / "peers.md").read_text(encoding="utf-8")
    assert "## Commits of sixteen senders" in text
    assert f"| {commits.COMMITTED}, to SQLite, synchronous=FULL |" in text


def test_a_peer_that_is_missing_has_a_line_with_the_reason(tmp_path: Path) -> None:
    result = run.run([Lost()], Size.SMALLEST, 1, tmp_path, print)
    page.write(result, tmp_path / "peers.md")
    text = (tmp_path / "peers.md").read_text(encoding="utf-8")
    assert "- Lost: not measured: there is no lostd" in text
    assert "A process that only slept, before each turn, was woken too late by" in text


def test_a_peer_whose_server_does_not_start_has_a_line_with_the_reason(tmp_path: Path) -> None:
    result = run.run([Broken()], Size.SMALLEST, 1, tmp_path, print)
    page.write(result, tmp_path / "peers.md")
    assert "- Broken, the server: no room on the disk" in (tmp_path / "peers.md").read_text(encoding="utf-8")


def test_a_peer_is_compared_with_what_promises_as_much_and_one_that_is_ahead_is_named(tmp_path: Path) -> None:
    # Given a peer that flushes, slower than ours without a flush and quicker than ours with one
    rows = [row("rmq", Level.HOST, ours=True), row("rmq-sync", Level.DISK, ours=True), row("other", Level.DISK)]
    rates = {"rmq": 1_000_000.0, "rmq-sync": 10_000.0, "other": 20_000.0}

    # When the page is written
    page.write(result_of(rows, rates), tmp_path / "peers.md")

    # Then it is said to be ahead of ours with a flush
    text = (tmp_path / "peers.md").read_text(encoding="utf-8")
    assert "- The other: send, each answered before the next, 100 B, 2.00 x ours" in text
    assert "| The other | a power cut | 20.0 k/s | 0.500 x |" in text


def test_nobody_is_ahead_when_ours_of_the_like_promise_is_quicker(tmp_path: Path) -> None:
    rows = [row("rmq", Level.HOST, ours=True), row("other", Level.HOST)]
    page.write(result_of(rows, {"rmq": 3_000_000.0, "other": 200_000.0}), tmp_path / "peers.md")
    text = (tmp_path / "peers.md").read_text(encoding="utf-8")
    assert "Nowhere in this run" in text
    assert "| The other | kill -9 | 200 k/s | 15.0 x |" in text


def test_a_missed_target_is_shown_with_what_limits_it(tmp_path: Path) -> None:
    # Given a single send that is twice as quick as Kafka's many
    result = result_of([row("rmq", Level.HOST, ours=True), row("kafka", Level.HOST)], {"rmq": 2_000_000.0})
    samples = Samples()
    samples.add("kafka", f"{sending.MANY}, 100 B", "/s", 1_000_000.0)
    result.figures.extend(samples.figures)

    # When the page is written
    page.write(result, tmp_path / "peers.md")

    # Then the target of five times as much was missed, and the page says why
    text = (tmp_path / "peers.md").read_text(encoding="utf-8")
    named = f"{SINGLE}, to The kafka, {sending.MANY}, 100 B"
    assert f"| {named} | 3.16 x | ≥ 5 x | 2.00 x | missed |" in text
    heading = "What limits those that were missed, by [profiles](profiles.md) of our side:"
    assert f"{heading}\n\n- {named}: a send is a call of Python" in text


def test_a_name_that_nobody_has_is_refused() -> None:
    answer = CliRunner().invoke(main, ["--only", "reddis"])
    assert answer.exit_code == 2
    assert "there is no peer reddis: --list names them" in answer.output


class Lost(Sqlite):
    """Needs a program that no machine has."""

    def __init__(self) -> None:
        super().__init__("NORMAL")
        self.name, self.title = "lost", "Lost"

    def missing(self) -> str:
        return "there is no lostd"


class Broken(Lost):
    """Does not start."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.title = "broken", "Broken"

    def missing(self) -> str:
        return ""

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        raise OSError(f"no room on the disk for {home.name[:3]}")
        yield


def row(name: str, level: Level, *, ours: bool = False) -> Row:
    promise = Promise(level, "sometimes")
    return Row(
        name=name,
        title=f"The {name}",
        ours=ours,
        framework=False,
        level=promise.level.value,
        flush=promise.flush,
        ways="in its way",
        versions={},
        not_measured="",
        failures={},
    )


def result_of(rows: list[Row], rates: dict[str, float]) -> Result:
    samples = Samples()
    for name, value in rates.items():
        samples.add(name, SINGLE, "/s", value)
    machine = Machine(cpu="cpu", cores=2, memory_gib=24.0, kernel="6", python="3.11", file_system="ext4")
    return Result(
        date="2026-11-23T20:00:00+00:00",
        commit="0ec4ec2",
        machine=machine,
        size=Size.QUICK,
        turns=1,
        took_s=1.0,
        load_before=0.1,
        rows=rows,
        figures=samples.figures,
    )


def test_the_environment_of_one_client_has_what_our_own_modules_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def succeed(command: list[str], _directory: Path | None = None) -> str:
        commands.append(command)
        return ""

    monkeypatch.setattr(environment, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(environment, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(environment, "_failure", succeed)
    assert environment.install(["redis"]) == environment.install(["redis"]) == ""
    assert [command[-2:] for command in commands] == [["orjson", "redis"]]
