"""What changed at 14:05? A day of deploys, kills, pauses, seeks and replays is told back in order, with its authors."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from rmqclient.store import open_store
from rmqclient.store.marks import marks_of, user
from rmqclient.workers.loading import ImportedApp
from rmqclient.workers.processes.signals import SignalPipe
from rmqclient.workers.processes.supervisor import Supervisor
from rmqclient.workers.processes.worker import Boot
from tests.workers.supervised import Supervised, rmq


def events(root: Path, *options: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = orjson.loads(rmq("events", "--store", str(root), "-o", "json", *options))
    return found


@pytest.mark.guarantee("G128")
def test_a_day_is_told_back_in_order(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    # In the morning, a deploy of two workers
    morning = supervise("obedient", "--processes", "2")
    pids = morning.ready(2)
    morning.send("one")

    # A worker is killed, one is added, a group is paused, moved and resumed
    store = ("--store", str(morning.root))
    os.kill(pids[1], signal.SIGKILL)
    morning.replaced(1, pids[1])
    morning.process.send_signal(signal.SIGTTIN)
    morning.ready(3)
    (group,) = [row["group"] for row in orjson.loads(rmq("group", "ls", *store, "-o", "json"))]
    rmq("group", "pause", group, "--reason", "the bank is closed", *store)
    rmq("group", "seek", group, "orders", "--to", "latest", "--yes", *store)
    at_noon_ms = time.time_ns() // 1_000_000
    rmq("group", "resume", group, *store)

    # The deploy ends; in the evening all processes of the next one are killed, and one more begins
    morning.tell_group(signal.SIGTERM)
    assert morning.exit_code() == 0
    evening = supervise("obedient", "--processes", "1")
    evening.ready(1)
    evening.kill_group()
    rmq("send", "orders", "two", *store)

    told = [(each["kind"], each["subject"], each["author"], each["words"]) for each in events(morning.root)]
    kinds = [kind for kind, *_ in told]
    assert kinds == [
        "start", "worker", "scale", "pause", "seek", "resume", "stop", "start", "opened",
    ]  # fmt: skip
    assert told[0] == ("start", "worker", user(), "2 workers of obedient:app")
    assert told[1][1] == "worker-1"
    assert "signal 9" in told[1][3] or "SIGKILL" in told[1][3]
    assert told[3] == ("pause", group, user(), "the bank is closed")
    assert told[-1][2] == ""

    # And of the afternoon alone, of one kind, and for a person on 80 columns
    afternoon = events(morning.root, "--since", time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_noon_ms / 1000)))
    assert [each["kind"] for each in afternoon][-4:] == ["resume", "stop", "start", "opened"]
    assert [each["kind"] for each in events(morning.root, "--kind", "pause", "--kind", "resume")] == ["pause", "resume"]
    assert rmq("events", *store).count("\n") >= len(told)


@pytest.mark.guarantee("G128")
def test_a_supervisor_whose_loop_raises_is_told_to_have_ended_by_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Supervisor) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Supervisor, "_turn", fail)
    boot = Boot(root=tmp_path / "store", config=None, app=ImportedApp.of("shop:app"), before_import=b"")
    with open_store(tmp_path / "store") as store, SignalPipe() as pipe:
        supervisor = Supervisor(
            store.workers(), boot, pipe, processes=1, mark=store.marks.write, application="shop:app 1.4.2"
        )
        with pytest.raises(OSError, match="Too many"):
            supervisor.run()
    told = [(mark.kind, mark.words) for mark in marks_of(tmp_path / "store")]
    assert told == [("start", "1 worker of shop:app 1.4.2"), ("stop", "shop:app 1.4.2 ended by an error")]


@pytest.mark.guarantee("G128")
def test_a_worker_that_hangs_is_told_with_the_reason_and_what_became_of_it(
    supervise: Callable[..., Supervised],
) -> None:
    supervised = supervise("obedient", "--processes", "1", "--time-limit", "1s")
    pids = supervised.ready(1)
    supervised.send("hang")
    supervised.replaced(1, pids[1])
    hung, killed = events(supervised.root, "--kind", "worker")
    assert hung["subject"] == killed["subject"] == "worker-1"
    assert hung["words"].startswith("hung: a message has been in its handler for")
    assert f"(pid {pids[1]})" in hung["words"]
    assert "SIGABRT" in killed["words"]
