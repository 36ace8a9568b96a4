"""``rmq top`` on a terminal: it draws, obeys keys, and leaves the terminal as it was. Rates are those of counters."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqclient import Message, Producer
from rmqclient.admin import Admin
from rmqclient.codecs import encode_body
from rmqclient.store import open_store
from rmqclient.workers.commands.top import View, _keys
from tests.support.stores import SMALL
from tests.workers.commands.test_cli import run
from tests.workers.supervised import COMMAND, environment

LIMIT_S = 60.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two groups, one of them further behind, on a topic with five messages."""
    with Producer(tmp_path / "store", config=SMALL) as producer, Admin(tmp_path / "store") as admin:
        producer.create_topic("orders", 1)
        for number in range(5):
            producer.send(Message("orders", b"%d" % number))
        admin.seek("audit", "orders", "earliest")
        admin.seek("billing", "orders", 3)
    return tmp_path / "store"


class Terminal:
    """A command on a terminal of its own. What it wrote since the last frame is in ``written``."""

    def __init__(self, root: Path, *arguments: str, columns: int = 110, **variables: str) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.former = termios.tcgetattr(self.slave)
        command = [*COMMAND, "top", "--store", str(root), *arguments]
        given = environment(**{"TERM": "xterm-256color", "NO_COLOR": "", **variables})
        its_own_size = {name: value for name, value in given.items() if name not in ("COLUMNS", "LINES")}
        self.child = subprocess.Popen(
            command, stdin=self.slave, stdout=self.slave, stderr=self.slave, env=its_own_size, start_new_session=True
        )
        self.written = ""

    def frame(self, *texts: str, without: str = "\0") -> str:
        """Return the first whole frame that has all these texts and not the other one."""
        until = time.monotonic() + LIMIT_S
        while True:
            *whole, self.written = self.written.split("\x1b[H")
            self.written = "\x1b[H" + self.written if whole else self.written
            for each in whole:
                if all(text in each for text in texts) and without not in each:
                    return re.sub(r"\x1b\[[?0-9]*[a-zA-Z]", "", each)
            assert select.select([self.master], [], [], until - time.monotonic())[0], (texts, self.written)
            self.written += os.read(self.master, 65_536).decode()

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self) -> int:
        """Wait for the end of the command; return its exit code. The rest that it wrote is in ``written``."""
        code = self.child.wait(LIMIT_S)
        while select.select([self.master], [], [], 0)[0]:
            self.written += os.read(self.master, 65_536).decode()
        return code


@contextmanager
def terminal(root: Path, *arguments: str, columns: int = 110, **variables: str) -> Iterator[Terminal]:
    opened = Terminal(root, *arguments, columns=columns, **variables)
    try:
        yield opened
    finally:
        opened.child.kill()
        opened.child.wait()
        os.close(opened.master)
        os.close(opened.slave)


def test_it_draws_obeys_keys_and_leaves_the_terminal_as_it_was(root: Path) -> None:
    with terminal(root, "--interval", "50ms") as screen:
        # Given a frame: the group that is furthest behind stands first
        shown = screen.frame("audit", "billing", "no workers")
        assert shown.index("audit") < shown.index("billing")
        assert re.search(r"audit +[-0] +[-0] +5 .*no members", shown)
        assert max(map(len, shown.splitlines())) <= 110

        # When keys are pressed, it shows a part, sorts, and stands still
        screen.press("g")
        screen.frame("GROUP", without="WORKER")
        screen.press("w")
        screen.frame("WORKER", without="GROUP")
        screen.press("a ")
        screen.frame("GROUP", "WORKER", "-- paused --")
        screen.press(" ")
        screen.frame("GROUP", without="-- paused --")

        # Then it ends by q, and gives the terminal back
        screen.press("q")
        assert screen.end() == 0
        assert screen.written.endswith("\x1b[?25h\x1b[?1049l")
        assert termios.tcgetattr(screen.slave) == screen.former


def test_an_interrupt_in_the_middle_of_a_look_raises_nothing_and_is_the_next_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, slave = pty.openpty()
    before = signal.getsignal(signal.SIGINT)
    with os.fdopen(slave, "w") as drawn:
        monkeypatch.setattr(sys, "stdin", drawn)
        monkeypatch.setattr(sys, "stdout", drawn)
        with _keys() as pressed:
            signal.raise_signal(signal.SIGINT)
            assert pressed(0) == "q"
        assert signal.getsignal(signal.SIGINT) is before
    os.close(master)


def test_an_interrupt_ends_it_like_q(root: Path) -> None:
    with terminal(root, "--interval", "50ms") as screen:
        screen.frame("GROUP")
        screen.child.send_signal(signal.SIGINT)
        assert screen.end() == 0
        assert "Abort" not in screen.written
        assert termios.tcgetattr(screen.slave) == screen.former


def test_so_many_frames_are_drawn(root: Path) -> None:
    with terminal(root, "--interval", "1ms", "-n", "3") as screen:
        assert screen.end() == 0
        assert screen.written.count("\x1b[H") == 3


def test_off_a_terminal_it_says_what_to_do(root: Path) -> None:
    result = run("top", "--store", str(root))
    assert (result.exit_code, "--once" in result.stderr) == (2, True)


@pytest.mark.parametrize("words", [("--once",), ("-n", "3"), ("--interval", "2s"), ("--message-age", "1m")], ids=str)
def test_what_the_history_has_no_use_for_is_refused(root: Path, words: tuple[str, ...]) -> None:
    assert run("top", "--since", "1h", *words, "--store", str(root)).exit_code == 2
    assert run("top", "--since", "1h", "--store", str(root), RMQ_TOP_INTERVAL="2s").exit_code == 0


def test_what_is_no_store_is_told(tmp_path: Path) -> None:
    result = run("top", "--once", "--interval", "1ms", "--store", str(tmp_path))
    assert (result.exit_code, "holds no store" in result.stderr) == (3, True), result.output


def test_rates_are_the_growth_of_counters_and_a_seek_is_none(root: Path) -> None:
    with closing(View(root, sort="group", wanted="", hung_after_s=300)) as view:
        view.look()
        assert {row["in_s"] for row in view.rows()["groups"]} == {None}, "not measured"
        with Producer(root) as producer, Admin(root) as admin:
            for number in range(4):
                producer.send(Message("orders", b"%d" % number))
            admin.seek("audit", "orders", "latest")
        view.look()
        rows = {row["group"]: row for row in view.rows()["groups"]}
    assert rows["billing"]["in_s"] > 0
    assert (rows["audit"]["lag"], rows["audit"]["out_s"]) == (0, 0)


def test_letters_that_were_purged_are_not_counted(root: Path) -> None:
    def letters() -> int:
        with closing(View(root, sort="group", wanted="audit", hung_after_s=300)) as view:
            view.look()
            (row,) = view.rows()["groups"]
        return int(row["dead_letters"])

    with open_store(root) as store:
        appender = store.appenders.make(lambda topic: store.topics.create(topic, 1), encode_body)
        for _ in range(2):
            appender.append(Message("%DLQ%audit", b"gone"))
    assert letters() == 2
    assert run("dlq", "purge", "audit", "--yes", "--store", str(root)).exit_code == 0
    assert letters() == 0


@pytest.mark.parametrize(("sort", "names"), [("lag", ["late", "audit"]), ("group", ["audit", "late"])])
def test_groups_are_sorted_by_a_column(root: Path, sort: str, names: list[str]) -> None:
    with Admin(root) as admin:
        admin.seek("late", "orders", "earliest")
        admin.seek("audit", "orders", 4)
    with closing(View(root, sort=sort, wanted="a", hung_after_s=300)) as view:
        view.look()
        assert [row["group"] for row in view.rows()["groups"]] == names


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    """Many groups that are idle, some with long names that are behind, and a dead letter."""
    root = tmp_path / "crowded"
    with Producer(root, config=SMALL) as producer, Admin(root) as admin:
        producer.create_topic("orders", 1)
        producer.send(Message("orders", b"one"))
        for number in range(40):
            admin.seek(f"idle-{number:03}", "orders", "latest")
        for number in range(30):
            admin.seek(f"a-group-with-a-very-long-name-{number:03}", "orders", "earliest")
    return root


def test_at_80_by_24_every_column_and_the_workers_are_whole_and_idle_groups_are_folded(crowded: Path) -> None:
    with terminal(crowded, "--interval", "50ms", columns=80) as screen:
        shown = [line.strip("\r") for line in screen.frame("GROUP").split("\n")]
        assert len(shown) <= 24
        assert max(map(len, shown)) <= 80
        (head,) = [line for line in shown if "GROUP" in line]
        assert head.split() == ["GROUP", "IN/S", "OUT/S", "LAG", "OLDEST", "DEAD", "STATE"]
        behind = [line for line in shown if "no members" in line]
        assert behind
        assert all(line.rstrip().endswith("no members") for line in behind)
        assert any("more: j, k, w" in line for line in shown)
        assert "no workers" in shown, "workers have a part of the screen"
        assert not any(line.startswith("idle-") for line in shown)

        screen.press("\x1b[6~\x1b[6~\x1b[6~")
        screen.frame("40 idle groups: i shows them", "no workers")
        screen.press("i")
        screen.frame("-000", without="idle groups: i shows them")
        screen.press("?")
        assert "page down" in screen.frame("workers alone")
        screen.press("?w")
        assert "no workers" in screen.frame("no workers", without="GROUP")


def test_rates_of_the_first_frame_are_not_measured(root: Path) -> None:
    with terminal(root, "--interval", "50ms", "-n", "2") as screen:
        screen.end()
    first, second = screen.written.split("\x1b[H")[1:]
    assert "in -/s" in first
    assert "in 0/s" in second


@pytest.mark.parametrize(
    ("variables", "has_colours", "has_codes"),
    [({}, True, True), ({"NO_COLOR": "1"}, False, True), ({"TERM": "dumb"}, False, False)],
    ids=["usual", "NO_COLOR", "dumb"],
)
def test_colours_and_codes_are_those_that_the_terminal_understands(
    root: Path, variables: dict[str, Any], has_colours: bool, has_codes: bool
) -> None:
    with terminal(root, "--interval", "10ms", "-n", "2", **variables) as screen:
        assert screen.end() == 0
    assert "no members" in screen.written
    assert ("\x1b[33mno members" in screen.written) is has_colours
    assert ("\x1b" in screen.written) is has_codes
