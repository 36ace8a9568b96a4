"""Child: one function run in a fresh interpreter, which begins at a signal.

The function gets ``begin`` as its first argument and calls it when it is ready; the call returns when the parent gives
the signal. So several children begin within some tens of microseconds of each other. No figure includes the start of an
interpreter or suffers from memory that another measurement used.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any, BinaryIO, ClassVar, Concatenate, Generic, ParamSpec, TypeVar

from benchmarks.machine import REPOSITORY

P = ParamSpec("P")
T = TypeVar("T")

Begin = Callable[[], None]

_READY = b"\n"
_COMMAND = "from benchmarks.child import main; main()"


class Child(Generic[T]):
    """A started process. ``function`` must be at the top level of a module; arguments and result must be picklable."""

    python: ClassVar[str] = sys.executable
    """The interpreter that runs it."""
    errors: IO[bytes] | None = None
    """Where its standard error goes; None for ours."""

    def __init__(self, function: Callable[Concatenate[Begin, P], T], *arguments: P.args, **named: P.kwargs) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._process = subprocess.Popen(
            [self.python, "-c", _COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=REPOSITORY,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to_child, self._from_child = self._process.stdin, self._process.stdout
        pickle.dump((function, arguments, named), self._to_child)
        self._to_child.flush()

    def wait_until_ready(self) -> None:
        """Wait until the function calls ``begin``. Raises RuntimeError if it fails before."""
        if self._from_child.read(1) != _READY:
            self._give_up()

    def begin(self) -> None:
        """Let the function continue."""
        self._to_child.write(_READY)
        self._to_child.flush()

    def result(self) -> T:
        """Wait for the function to return. Raises RuntimeError if it failed; its traceback is on standard error."""
        try:
            result: T = pickle.load(self._from_child)
        except EOFError:
            self._give_up()
            raise
        with self._process:
            return result

    def _give_up(self) -> None:
        with self._process:
            self._process.kill()
        raise RuntimeError(f"{self._name} failed in process {self._process.pid}")


def together(*children: Child[T]) -> list[T]:
    """Begin all when all are ready, and return their results."""
    for child in children:
        child.wait_until_ready()
    for child in children:
        child.begin()
    return [child.result() for child in children]


def alone(child: Child[T]) -> T:
    """Run one child alone and return its result."""
    return together(child)[0]


def main() -> None:
    """Run in the child: read the function from standard input, write its result to standard output."""
    source = sys.stdin.buffer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")  # its end marks the end of a traceback, so it stays open
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of the function must not mix with the result
    function, arguments, named = pickle.load(source)
    result: Any = function(lambda: _wait(source, answers), *arguments, **named)
    pickle.dump(result, answers)
    answers.flush()


def _wait(source: BinaryIO, answers: BinaryIO) -> None:
    answers.write(_READY)
    answers.flush()
    if source.read(1) != _READY:
        raise SystemExit("the parent is gone")
