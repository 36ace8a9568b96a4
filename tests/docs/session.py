"""Pages that are sessions: their files are written and their commands run, in the order of the page.

::

    <!-- a session -->              anywhere in the page
    ```python
    # shop.py                       the block is this file, also when it comes again
    ```
    ```console
    $ python send.py                runs, and must end with 0
    sent 7F...                      what it prints: ... stands for the rest of a line, or, alone, for some lines
    $ rmq run shop:app
    ready
    ^C                              when the lines above were printed, in any order, Ctrl-C ends it
    ```

What follows ``<!-- not run: reason -->`` is left out.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SESSION = "<!-- a session -->"
DEADLINE_S = 90.0

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_BLOCK = re.compile(
    r"^<!-- not run: (?P<reason>.+?) -->$|^```(?P<language>python|console|toml)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class File:
    """A file that the reader writes."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the reader types, what is printed, and whether Ctrl-C ends it."""

    line: str
    prints: str
    is_interrupted: bool


def steps_of(page: str) -> Iterator[File | Command]:
    """Yield what a reader of the page does. Raises ValueError for a block of Python that names no file."""
    is_run = True
    for block in _BLOCK.finditer(page):
        if block["reason"]:
            is_run = False
        elif is_run and block["language"] == "console":
            yield from _commands(block["text"])
        elif is_run:
            named = re.match(r"# (\S+\.\w+)\n", block["text"])
            if not named:
                raise ValueError(f"the first line of a file in a session is its name: {block['text'][:60]!r}")
            yield File(named[1], block["text"])
        else:
            is_run = True


def _commands(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, prints = part.partition("\n")
        before, interrupted, _ = prints.partition("^C\n")
        yield Command(line, before, bool(interrupted))


def matches(command: Command, printed: str) -> bool:
    """Return whether a command printed what the page shows: line by line; of one that is interrupted, in any order.

    Worker processes write side by side, so the order of their lines is nobody's.
    """
    lines = command.prints.splitlines()
    if command.is_interrupted:
        return all(re.search(f"^{_line(line)}", printed, re.MULTILINE) for line in lines if line != "...")
    pattern = "".join("(?:.*\n)*?" if line == "..." else _line(line) for line in lines)
    return bool(re.search(f"^{pattern}", printed, re.MULTILINE))


def _line(line: str) -> str:
    return ".*?".join(re.escape(part.rstrip()) for part in line.split("...")) + "[ ]*\n"


def run(command: Command, directory: Path, environment: dict[str, str]) -> str:
    """Run one command in a terminal and return what it printed.

    Raises AssertionError for an exit code that is not 0, and if it printed something else than the page says.
    """
    ours, its = pty.openpty()
    child = subprocess.Popen(
        ["bash", "-c", f"exec {command.line}" if command.is_interrupted else command.line],
        cwd=directory,
        env=environment,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    deadline = threading.Timer(DEADLINE_S, lambda: os.killpg(child.pid, signal.SIGKILL))
    deadline.start()
    printed, is_told = "", False
    with contextlib.suppress(OSError), os.fdopen(ours, encoding="utf-8", newline="") as terminal:  # EIO: all have ended
        for line in terminal:
            printed += _COLOUR.sub("", line.replace("\r\n", "\n"))
            if command.is_interrupted and not is_told and matches(command, printed):
                child.send_signal(signal.SIGINT)
                is_told = True
    code = child.wait()
    deadline.cancel()
    assert matches(command, printed), f"$ {command.line}\n{printed}\nand the page says\n{command.prints}"
    assert code in ({0, 130} if command.is_interrupted else {0}), printed
    return printed


def environment_of(repository: Path) -> dict[str, str]:
    """Return the environment of a reader who has installed the package, and nothing else that is ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RMQ_")}
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return kept | {"PATH": os.pathsep.join(paths), "PYTHONPATH": str(repository), "COLUMNS": "160", "TERM": "xterm"}


def follow(steps: Iterable[File | Command], directory: Path, environment: dict[str, str]) -> None:
    """Do what a page says, step by step; ``export`` lines change ``environment``. Raises as :func:`run`."""
    for step in steps:
        match step:
            case File(name, text):
                (directory / name).write_text(text, encoding="utf-8")
            case Command(line) if line.startswith("export "):
                name, _, value = line.removeprefix("export ").partition("=")
                environment[name] = value
            case Command():
                run(step, directory, environment)
