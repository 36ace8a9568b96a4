"""The commands of the page about replication run, in its order, with two addresses of this host for its two hosts."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.docs.commands.lines import lines, run_here
from tests.docs.commands.shop import open_shop
from tests.docs.sessions.terminal import Terminal

pytestmark = [pytest.mark.sweep, pytest.mark.slow]

PAGE = "docs/operate/replication.md"
LINES = [line for line in lines() if line.page == PAGE and line.command != "cat slave.conf"]

HOST_IS_LOST = (
    "rmq send orders kept --store ./store",  # what only the old primary has
    "rmq replica promote --store ./copy --force",
    "rmq serve ./copy --listen 10.0.0.2:10911 --ha-listen 10.0.0.2:10912",
)
"""What the page says of it in its text."""


class Hosts:
    """What runs on two hosts, by what it is and the directory that it has."""

    def __init__(self, directory: Path, environment: dict[str, str], addresses: dict[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self._addresses = addresses
        self._running: dict[str, Terminal] = {}

    def do(self, command: str) -> None:
        """Run a command to its end, or start it in the place of what does the same there."""
        what = re.match(r"rmq (?:replica )?(serve|follow) .*?(\./\w+)", command)
        for theirs, ours in self._addresses.items():
            command = command.replace(theirs, ours)
        if what is None:
            run_here(command, typed=b"y\n")
            return
        key = f"{what[1]} {what[2]}"
        self.end(key)
        self._running[key] = Terminal(f"exec {command}", self._directory, self._environment)
        self._running[key].wait_for(lambda printed: printed.startswith("{"))
        assert self._running[key].printed.startswith("{"), f"{command}\n{self._running[key].printed}"

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
    first, second, third = free_port(), free_port(), free_port()
    addresses = {
        "10.0.0.1:10911": f"127.0.0.1:{first}",
        "10.0.0.1:10912": f"127.0.0.1:{first + 1}",
        "10.0.0.1:10909": f"127.0.0.1:{third}",
        "10.0.0.2:10911": f"127.0.0.1:{second}",
        "10.0.0.2:10912": f"127.0.0.1:{second + 1}",
    }
    with ExitStack() as stack:
        opened = Hosts(directory, shop.environment(), addresses)
        stack.callback(opened.close)
        yield opened


def free_port() -> int:
    """Return a port where nobody listens, nor at the next one: HA is at the port behind the broker's."""
    while True:
        with socket.socket() as one, socket.socket() as next_one:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                next_one.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


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
