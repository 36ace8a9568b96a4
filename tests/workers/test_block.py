"""``with app.workers()`` in a script: its own handlers in worker processes, which are killed, stopped or left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.supervised import LONG_S, environment, eventually, rmq, runs

pytestmark = pytest.mark.slow

APP = """
from __future__ import annotations

import dataclasses, os, sys, threading, time
from pathlib import Path

from rmqclient import App, StoreConfig

app = App("store", config=StoreConfig.small())
RECORD = Path("record")


@dataclasses.dataclass
class Order:
    word: str


def record(what: str) -> None:
    with RECORD.open("a") as file:
        file.write(f"{os.getpid()} {what}\\n")


def wait_for(name: str) -> None:
    while not Path(name).exists():
        threading.Event().wait(0.02)


@app.handler("orders", group="billing", threads=2)
def obey(order: Order) -> None:
    record(f"began {order.word}")
    if order.word == "wait":
        wait_for("go")
    record(f"done {order.word}")

"""

BLOCK = """
with app.workers(processes=2) as workers:
    record("inside")
    while not Path("leave").exists():
        assert not workers.wait(0.02)
record("outside")
"""


class Script:
    """A script in a directory of its own, which runs as ``__main__`` and leads its process group."""

    def __init__(self, directory: Path, text: str) -> None:
        self.directory = directory
        (directory / "script.py").write_text(text, encoding="utf-8")
        self.log_path = directory / "log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "script.py"],
                cwd=directory,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8")

    def send(self, word: str) -> None:
        rmq("send", "orders", json.dumps({"word": word}), "--store", str(self.directory / "store"))

    def make(self, name: str) -> None:
        (self.directory / name).touch()

    def recorded(self, what: str) -> int:
        """Wait for a record; return the id of the process that made it."""
        eventually(lambda: self._records(what), f"{what!r} in the records; the log:\n{self.log}")
        return self._records(what)[0]

    def _records(self, what: str) -> list[int]:
        path = self.directory / "record"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [int(pid) for pid, _, told in (line.partition(" ") for line in lines) if told == what]

    def workers(self) -> list[int]:
        """The process ids of the workers that are ready."""
        return [row["pid"] for row in self._rows() if row["state"] == "ready"]

    def supervisor(self) -> int:
        return int(self._rows()[0]["supervisor_pid"])

    def in_flight(self) -> int:
        return sum(row["in_flight"] for row in self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        return list(json.loads(rmq("worker", "ls", "--store", str(self.directory / "store"), "-o", "json")))

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def exit_code(self) -> int:
        return self.process.wait(LONG_S)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[[str], Script]]:
    started: list[Script] = []

    def start(text: str) -> Script:
        started.append(Script(tmp_path, text))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()  # its workers end when it is gone
        each.process.wait(LONG_S)


@pytest.mark.guarantee("G125")
def test_the_handlers_of_a_script_run_in_workers_and_the_end_of_the_block_lets_them_finish(
    script: Callable[[str], Script],
) -> None:
    # Given a script whose handlers, classes and variables no other process can import
    running = script(APP + BLOCK)
    running.recorded("inside")
    pids = [*running.workers(), running.supervisor()]
    assert len(pids) == 3

    # When it leaves the block while a handler works
    running.send("wait")
    assert running.recorded("began wait") in pids
    running.make("leave")
    eventually(lambda: not running.workers(), "workers that take no more messages")

    # Then the message finishes before the script goes on
    assert running.process.poll() is None
    running.make("go")
    assert running.recorded("done wait") in pids
    assert running.recorded("outside") == running.process.pid
    assert running.exit_code() == 0
    assert not any(map(runs, pids))


@pytest.mark.guarantee("G125")
def test_a_worker_of_a_script_that_is_killed_is_started_again_with_the_same_handlers(
    script: Callable[[str], Script],
) -> None:
    running = script(APP + BLOCK)
    running.recorded("inside")
    before = running.workers()
    running.send("wait")
    killed = running.recorded("began wait")
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: len(set(running.workers()) - {killed}) == 2, "two workers")
    (new,) = set(running.workers()) - set(before)
    running.make("go")
    assert running.recorded("done wait") in running.workers()
    assert runs(new)
    assert "killed by SIGKILL" in running.log


@pytest.mark.guarantee("G125")
def test_ctrl_c_in_the_block_lets_messages_finish_and_once_more_kills_the_workers(
    script: Callable[[str], Script],
) -> None:
    running = script(APP + BLOCK)
    running.recorded("inside")
    pids = running.workers()
    running.send("wait")
    busy = running.recorded("began wait")
    eventually(lambda: running.in_flight() == 1, "the message in the worker table")
    running.interrupt()
    eventually(lambda: "stopping: messages in flight: 1" in running.log, "the stop in the log")
    assert runs(busy)
    running.interrupt()
    assert running.exit_code() == -signal.SIGINT
    assert "killing the workers" in running.log
    assert not any(map(runs, pids))


@pytest.mark.guarantee("G125")
def test_messages_finish_and_workers_end_when_the_script_is_killed(script: Callable[[str], Script]) -> None:
    running = script(APP + BLOCK)
    running.recorded("inside")
    pids = [*running.workers(), running.supervisor()]
    running.send("wait")
    running.recorded("began wait")
    running.process.kill()
    running.exit_code()
    eventually(lambda: not running.workers(), "workers that take no more messages")
    running.make("go")
    running.recorded("done wait")
    eventually(lambda: not any(map(runs, pids)), "the end of the workers")


def test_a_child_that_the_script_forks_leaves_the_workers_to_it(script: Callable[[str], Script]) -> None:
    running = script(
        APP
        + """
with app.workers(processes=1):
    child = os.fork()
    if child == 0:
        sys.exit(7)  # which leaves the block
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    record("inside")
    wait_for("leave")
record("outside")
"""
    )
    running.recorded("inside")
    running.send("hello")
    running.recorded("done hello")
    running.make("leave")
    assert running.exit_code() == 0, running.log


def test_what_cannot_be_copied_is_named_before_a_process_starts(script: Callable[[str], Script]) -> None:
    running = script(
        APP
        + """
counting = threading.Lock()

@app.handler("orders", group="counts")
def count(order: Order) -> None:
    with counting:
        record("counted")

with app.workers(processes=1):
    record("inside")
"""
    )
    assert running.exit_code() == 1
    assert "HandlerError: handler __main__:count cannot be copied for worker processes" in running.log
    assert "'counting': a lock" in running.log
    assert not (running.directory / "store").exists()


def test_workers_that_cannot_start_end_the_block_with_the_reason(script: Callable[[str], Script]) -> None:
    # Given a module that every process can import but a worker
    running = script(
        """
import sys
sys.path.insert(0, "modules")
from rmqclient.errors import WorkersEnded
from shop import app

try:
    with app.workers(processes=1):
        raise AssertionError("it began")
except WorkersEnded as error:
    print("ended:", error)
"""
    )
    (running.directory / "modules").mkdir()
    shop = "from rmqclient import App\napp = App('store')\n@app.handler('t', group='g')\ndef handle(message): ...\n"
    (running.directory / "modules" / "shop.py").write_text(
        f"{shop}import multiprocess\nif multiprocess.parent_process():\n    raise RuntimeError('not in a worker')\n",
        encoding="utf-8",
    )
    assert running.exit_code() == 0, running.log
    assert "ended: a worker cannot load the handlers" in running.log
    assert "RuntimeError: not in a worker" in running.log


def test_a_store_that_cannot_be_opened_ends_the_block_with_the_reason(script: Callable[[str], Script]) -> None:
    running = script(APP.replace('App("store"', 'App("script.py/store"') + "with app.workers(processes=1): ...\n")
    assert running.exit_code() == 1
    assert "WorkersEnded: StoreUnusable" in running.log


def test_a_worker_that_imports_the_block_starts_no_workers(script: Callable[[str], Script]) -> None:
    # Given a module that starts workers wherever it is imported, and whose handlers go by their names
    running = script("import shop\n")
    (running.directory / "shop.py").write_text(APP + "with app.workers(processes=1): ...\n", encoding="utf-8")
    assert running.exit_code() == 1
    assert "a worker starts no workers" in running.log
    assert "WorkersEnded: a worker cannot load the handlers" in running.log
