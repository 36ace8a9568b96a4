"""The commands of the page about replication run, in its order, with two addresses of this host for its two hosts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rmqclient.store.settings.lineage import read_lineage
from tests.docs.commands.lines import lines, run_here
from tests.docs.commands.shop import open_shop
from tests.docs.sessions.terminal import Terminal
from tests.workers.supervised import eventually

pytestmark = [pytest.mark.sweep, pytest.mark.slow]

PAGE = "docs/operate/replication.md"
LINES = [line for line in lines() if line.page == PAGE and line.command != "cat slave.conf"]

OWN_NETWORK = f"127.{os.getpid() // 256 % 255 + 1}.{os.getpid() % 256}."
"""Addresses of this host that no other process of the tests has, so that the ports are those of the page."""

HOST_IS_LOST = (
    "rmq send orders kept --store ./store",  # what only the old primary has
    "rmq replica promote --store ./copy --force",
    "rmq serve ./copy --listen 10.0.0.2:10911 --ha-listen 10.0.0.2:10912",
)
"""What the page says of it in its text."""


def _has_begun(printed: str) -> bool:
    """Whether a server has said where it listens; a replica that connects at once may be logged before."""
    return any(line.startswith("{") for line in printed.splitlines())


class Hosts:
    """What runs on two hosts, by what it is and the directory that it has."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self._running: dict[str, Terminal] = {}

    def do(self, command: str) -> None:
        """Run a command to its end, or start it in the place of what does the same there."""
        what = re.match(r"rmq (?:replica )?(serve|follow) .*?(\./\w+)", command)
        command = command.replace("10.0.0.", OWN_NETWORK)
        if what is None:
            run_here(command, typed=b"y\n")
            return
        key = f"{what[1]} {what[2]}"
        self.end(key)
        self._running[key] = Terminal(f"exec {command}", self._directory, self._environment)
        self._running[key].wait_for(_has_begun)
        assert _has_begun(self._running[key].printed), f"{command}\n{self._running[key].printed}"
        if what[1] == "follow":  # it says so before it has met its primary, whose history a later command may need
            eventually(lambda: read_lineage(self._directory / what[2]).store_id, f"a primary met by {command}")

    def end(self, *keys: str) -> None:
        """Press Ctrl-C at these, or at all without a name."""
        for terminal in [self._running.pop(key) for key in keys or [*self._running] if key in self._running]:
            terminal.interrupt()
            assert terminal.end() == 0, terminal.printed

    def close(self) -> None:
        """Leave nothing behind."""
        for terminal in self._running.values():
            terminal.close()


@contextmanager
def hosts(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    directory.mkdir()
    shop = open_shop(directory)
    shop.enter(monkeypatch)
    with ExitStack() as stack:
        opened = Hosts(directory, shop.environment())
        stack.callback(opened.close)
        yield opened


def test_every_command_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(LINES) == 9
    for_a_slave = [line for line in LINES if line.command.count("--listen") > 1]
    with hosts(tmp_path / "two", monkeypatch) as two:
        for line in [line for line in LINES if line not in for_a_slave]:
            if "rejoin" in line.command:
                lose_a_host(two)
            two.do(line.command)
    with hosts(tmp_path / "slave", monkeypatch) as one:
        for line in for_a_slave:
            one.do(line.command)


def lose_a_host(two: Hosts) -> None:
    two.end()
    for command in HOST_IS_LOST:
        two.do(command)
