"""Cases that may crash or hang, in forked children: a crash costs one case, and is an outcome like any other."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

LONGEST_S = 10.0
"""A case that takes longer hangs."""


def outcomes(count: int, case: Callable[[int], str], longest_s: float = LONGEST_S) -> Iterator[tuple[int, str]]:
    """Run ``case(0)`` to ``case(count - 1)`` in children; yield what each returned, or how it ended.

    Children are forked from this process as it stands; when one dies or hangs, the next goes on behind that case.
    """
    done = 0
    while done < count:
        for number, outcome in _outcomes_of_one_child(done, count, case, longest_s):
            yield number, outcome
            done = number + 1


def ending(outcome: str) -> str:
    """Return the outcome if it is one of a child that did not return, else nothing."""
    return outcome if outcome.startswith(("hang", "signal", "traceback", "exit")) else ""


def _outcomes_of_one_child(
    start: int, count: int, case: Callable[[int], str], longest_s: float
) -> Iterator[tuple[int, str]]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run(start, count, case, writing)
    os.close(writing)
    number, rest = start, b""
    hangs = False
    while True:
        if not select.select([reading], [], [], longest_s)[0]:
            hangs = True
            os.kill(child, signal.SIGKILL)
            break
        found = os.read(reading, 1 << 16)
        if not found:
            break
        *lines, rest = (rest + found).split(b"\n")
        for line in lines:
            yield number, line.decode()
            number += 1
    os.close(reading)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if hangs:
        yield number, f"hang of more than {longest_s:.0f} s"
    elif number < count:
        yield number, f"signal {-status}" if status < 0 else f"exit {status}"


def _run(start: int, count: int, case: Callable[[int], str], writing: int) -> None:
    faulthandler.disable()
    for number in range(start, count):
        try:
            outcome = case(number)
        except BaseException as error:  # noqa: BLE001 - whatever is raised is the outcome
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            outcome = f"traceback {type(error).__name__} at {where}: {error}".replace("\n", " ")
        os.write(writing, outcome.encode("utf-8", "replace") + b"\n")
    os._exit(0)
