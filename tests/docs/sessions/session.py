"""Pages that are sessions: their files are written and their commands run, in the order of the page.

::

    <!-- a session -->              the rest of the page is one, or the part before <!-- the session ends -->
    <!-- a session: it needs django, curl -->       modules and programs without which the tests leave it out
    ```python
    # shop.py                       the block is this file, also when it comes again
    ```
    ```python
    # shop/settings.py, at its end  the block is added to this file
    ```
    ```console
    $ python send.py                runs, and must end with 0
    sent 7F...                      what it prints: ... stands for the rest of a line, or, alone, for some lines
    $ rmq run shop:app
    ready
    ^C                              when the lines above were printed, in any order, Ctrl-C ends it
    $ uvicorn web:api &             goes on beside the next ones, once it has printed the lines below
    $ fg                            the last of those: its lines are awaited, and Ctrl-C ends it
    ```

What follows ``<!-- not run: reason -->`` is left out.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.docs.page import session_of
from tests.docs.sessions.terminal import Terminal

_BLOCK = re.compile(
    r"^<!-- not run: (?P<reason>.+?) -->$|^```(?P<language>python|console|toml)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_FILE = re.compile(r"# (?P<name>\S+\.\w+)(?P<is_added>, at its end)?\n")
_INTERRUPTED = {0, 130, -signal.SIGINT}
_BESIDE = re.compile(r"\s+&\s*(#.*)?$")


@dataclass(frozen=True, slots=True)
class File:
    """A file that the reader writes, or adds to."""

    name: str
    text: str
    is_added: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the reader types, what is printed, and whether Ctrl-C ends it."""

    line: str
    prints: str
    is_interrupted: bool = False

    @property
    def is_beside(self) -> bool:
        """Whether it goes on while the next commands run."""
        return bool(_BESIDE.search(self.line))


def steps_of(page: str) -> Iterator[File | Command]:
    """Yield what a reader of a session does. Raises ValueError for a block of Python that names no file."""
    is_run = True
    for block in _BLOCK.finditer(session_of(page) or page):
        if block["reason"]:
            is_run = False
        elif is_run and block["language"] == "console":
            yield from _commands(block["text"])
        elif is_run:
            named = _FILE.match(block["text"])
            if not named:
                raise ValueError(f"the first line of a file in a session is its name: {block['text'][:60]!r}")
            yield File(named["name"], block["text"], bool(named["is_added"]))
        else:
            is_run = True


def at_a_free_port(page: str) -> str:
    """Return a page whose port 8000 is one where nobody listens: others may run it, too."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return re.sub(r"\b8000\b", str(bound.getsockname()[1]), page)


def _commands(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, prints = part.partition("\n")
        before, interrupted, _ = prints.partition("^C\n")
        yield Command(line, before, bool(interrupted))


def matches(command: Command, printed: str) -> bool:
    """Return whether a command printed what the page shows: line by line; of one that goes on, in any order.

    Worker processes write side by side, so the order of their lines is nobody's.
    """
    lines = command.prints.splitlines()
    if command.is_interrupted or command.is_beside:
        return all(re.search(f"^{_line(line)}", printed, re.MULTILINE) for line in lines if line != "...")
    pattern = "".join("(?:.*\n)*?" if line == "..." else _line(line) for line in lines)
    return bool(re.search(f"^{pattern}", printed if printed.endswith("\n") else f"{printed}\n", re.MULTILINE))


def _line(line: str) -> str:
    return ".*?".join(re.escape(part.rstrip()) for part in line.split("...")) + "[ ]*\n"


def run(command: Command, directory: Path, environment: dict[str, str]) -> str:
    """Run one command in a terminal and return what it printed.

    Raises AssertionError for an exit code that is not 0, and if it printed something else than the page says.
    """
    line = f"exec {command.line}" if command.is_interrupted else command.line
    with Terminal(line, directory, environment) as terminal:
        return _ended(command, terminal)


def _ended(command: Command, terminal: Terminal) -> str:
    if command.is_interrupted:
        terminal.wait_for(lambda printed: matches(command, printed))
        terminal.interrupt()
    code = terminal.end()
    _check(command, terminal.printed)
    assert code in (_INTERRUPTED if command.is_interrupted else {0}), terminal.printed
    return terminal.printed


def _check(command: Command, printed: str) -> None:
    assert matches(command, printed), f"$ {command.line}\n{printed}\nand the page says\n{command.prints}"


def environment_of(repository: Path) -> dict[str, str]:
    """Return the environment of a reader who has installed the package, and nothing else that is ours.

    With PYTHONUNBUFFERED, which tests may be run with, the lines of two workers that print at once are mixed.
    """
    ours = ("PYTHON", "PYTEST_", "RMQ_", "DJANGO_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return kept | {"PATH": os.pathsep.join(paths), "PYTHONPATH": str(repository), "COLUMNS": "160", "TERM": "xterm"}


class Session:
    """A reader in a directory, with variables, and with commands that go on beside the others. A context manager."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self._beside: list[Terminal] = []

    def do(self, step: File | Command) -> None:
        """Write a file or run a command; ``export`` lines change the variables. Raises as :func:`run`."""
        match step:
            case File():
                self._write(step)
            case Command(line) if line.startswith("export "):
                name, _, value = line.removeprefix("export ").partition("=")
                self._environment[name] = value
            case Command("fg"):
                _ended(step, self._beside.pop())
            case Command() if step.is_beside:
                self._start(step)
            case Command():
                run(step, self._directory, self._environment)

    def _write(self, file: File) -> None:
        path = self._directory / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if file.is_added else "w", encoding="utf-8") as opened:
            opened.write(file.text)

    def _start(self, command: Command) -> None:
        terminal = Terminal(f"exec {_BESIDE.sub('', command.line)}", self._directory, self._environment)
        self._beside.append(terminal)
        terminal.wait_for(lambda printed: matches(command, printed))
        _check(command, terminal.printed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        while self._beside:
            self._beside.pop().close()


def follow(steps: Iterable[File | Command], directory: Path, environment: dict[str, str]) -> None:
    """Do what a page says, step by step. Raises as :func:`run`."""
    with Session(directory, environment) as session:
        for step in steps:
            session.do(step)
