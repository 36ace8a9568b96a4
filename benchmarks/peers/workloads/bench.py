"""Bench: one peer on whom something is measured, with the children that do the work.

A child is killed, and the work fails, when it takes too long; what it printed last is the reason.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from benchmarks.child import Begin, Child
from benchmarks.measure import Unit
from benchmarks.peers.peer import Running
from benchmarks.peers.processes import ENVIRONMENT

P = ParamSpec("P")
T = TypeVar("T")

LIMIT_S = 150.0
"""Longest time of one child."""


class WorkFailed(Exception):
    """A child failed or took too long; the message has its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How long and how much is measured in one turn."""

    sizes: tuple[int, ...] = (100, 1024, 16_384)
    """Of bodies, in bytes."""
    send_s: float
    """Of each way of sending, for each size."""
    commit_s: float
    """Of sending by sixteen processes."""
    consume_s: float
    """Of consuming what was sent, at most."""
    rate: int = 1_000
    """Messages a second, for latency."""
    latency_s: float
    not_counted_s: float = 0.5
    """Before that, at the same rate."""
    backlog: int
    """Messages that wait when the drain begins."""
    drain_s: float
    delayed: int
    keyed: int
    """Messages, a multiple of the keys."""
    tasks_s: float
    """Of running what was put in, at most."""
    task_rate: int = 200
    task_latency_s: float


@dataclass(frozen=True, slots=True)
class Bench:
    """A running peer."""

    peer: Any
    """A Peer, or a Framework: what its works take."""
    running: Running
    scale: Scale
    add: Callable[[str, Unit, float], None]
    """Takes the name of a figure, its unit and its value."""

    def child(self, function: Callable[Concatenate[Begin, P], T], *arguments: P.args, **named: P.kwargs) -> Timed[T]:
        """Start a function in the environment of the peer's client: ours, if it needs no packages."""
        kind = _Theirs if self.peer.packages else _Ours
        return kind(function, *arguments, **named)


def together(*children: Timed[T]) -> list[T]:
    """Begin children together, and return their results. Raises WorkFailed."""
    with working(*children):
        return [child.result() for child in children]


@contextmanager
def working(*children: Timed[Any]) -> Iterator[None]:
    """Begin children together, and kill them at the end of the block. Raises WorkFailed when one of them has failed."""
    try:
        for child in children:
            child.wait_until_ready()
        for child in children:
            child.begin()
        yield
    except (RuntimeError, EOFError, OSError) as error:
        said = [words for each in children if (words := each.last_words())]
        raise WorkFailed("; ".join(said) or str(error)) from error
    finally:
        for child in children:
            child.give_up()


class Timed(Child[T]):
    """A child that is killed when its time is up."""

    def __init__(self, function: Callable[Concatenate[Begin, P], T], *arguments: P.args, **named: P.kwargs) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        self._timed_out = False
        super().__init__(function, *arguments, **named)
        self._timer = threading.Timer(LIMIT_S, self._time_is_up)
        self._timer.daemon = True
        self._timer.start()

    def last_words(self) -> str:
        """Return the last line of its standard error."""
        if self._timed_out:
            return f"it took more than {LIMIT_S:.0f} s"
        assert self.errors is not None
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip().rpartition("\n")[2][-300:]

    def give_up(self) -> None:
        """End it if it still runs."""
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self.errors):
            if file is not None:
                file.close()

    def _time_is_up(self) -> None:
        self._timed_out = True
        self._process.kill()


class _Ours(Timed[T]):
    pass


class _Theirs(Timed[T]):
    python: ClassVar[str] = str(ENVIRONMENT / "bin" / "python")
