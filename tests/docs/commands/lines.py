"""Lines: the commands of the pages, as a reader types them, and running one in this process."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from rmqclient.workers.cli import rmq
from tests.docs.page import PAGES, REPOSITORY


class Line(NamedTuple):
    """A command, where it stands, and what it is without the comment behind it."""

    page: str
    number: int
    text: str

    @property
    def command(self) -> str:
        """The command alone."""
        return re.sub(r"\s+#.*$", "", self.text)


def lines() -> Iterator[Line]:
    """Yield the commands of all pages, in their order."""
    for page in PAGES:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            if found := re.match(r" *\$ (.+)$", line):
                yield Line(page.relative_to(REPOSITORY).as_posix(), number, found[1])


def run_here(command: str, typed: bytes = b"", longest_s: float = 60) -> str:
    """Run a line of `rmq` commands in this process, joined by `|`, the last one perhaps into a file; return its output.

    ``typed`` is what the first one reads.
    ``export`` changes the variables of this process. Raises AssertionError for another program, for an exit code that
    is not 0, and for a command that has not ended after so long.
    """
    if command.startswith("export "):
        name, _, value = command.removeprefix("export ").partition("=")
        os.environ[name] = value
        return ""
    given = typed
    for part in command.split(" | "):
        words = shlex.split(part)
        target = words[words.index(">") + 1] if ">" in words else None
        words = words[: words.index(">")] if target else words
        assert words[0] == "rmq", f"{command}: run it, or list it"
        with _ended_after(longest_s, command):
            done = CliRunner().invoke(rmq, words[1:], input=given)
        assert done.exit_code == 0, f"{command}: {done.output}{done.exception or ''}"
        given = done.stdout_bytes
        if target:
            Path(target).write_bytes(given)
    return given.decode()


@contextmanager
def _ended_after(seconds: float, command: str) -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise AssertionError(f"{command}: has not ended after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def complaints(lines: list[Line], run: Callable[[Line], object]) -> list[str]:
    """Run each line, and return what is wrong with those that fail."""
    found = []
    for line in lines:
        try:
            run(line)
        except AssertionError as error:
            found.append(f"{line.page}:{line.number}: {error}")
    return found
