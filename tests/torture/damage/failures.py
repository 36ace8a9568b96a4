"""The n-th system call fails, for every call that a store makes of the operating system and for every n.

A child with everything imported opens a store, sends, rolls files, flushes, consumes, writes offsets, closes and opens
again (``child_failures.py``). ``strace`` lets one of its calls fail: once, or from then on. A call counts when it is
made by the store; the child makes few others.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rmqclient.store import open_store
from rmqclient.store.errors import QueueError
from rmqclient.store.inspect.verify import verify
from tests.support.host.forking import ForkingProcess
from tests.support.oracle import reference
from tests.support.oracle.views import stored_bodies
from tests.support.stores import SPAN, grant_of, number_of
from tests.torture.result import Result, Rig

CLAIM = (
    "Whichever system call fails, once or from then on, the caller gets a typed error, and nothing that was "
    "acknowledged is lost."
)

CALLS = (
    "openat", "mmap", "fallocate", "fdatasync", "fsync", "rename", "link", "unlink", "ftruncate", "pwrite64", "pread64",
    "write", "read", "mkdir", "fcntl", "newfstatat", "getdents64", "statfs", "access", "madvise",
)  # fmt: skip
ERRORS = ("EIO", "ENOSPC", "EMFILE", "ENOMEM")


class Fault(NamedTuple):
    """The ``number``-th ``call`` fails with ``error``, once or from then on."""

    call: str
    error: str
    number: int
    lasting: bool

    def __str__(self) -> str:
        return f"{self.call} {self.number}{'+' if self.lasting else ''} {self.error}"


@dataclass(slots=True)
class Run:
    """What came of one run."""

    status: int
    calls: list[str]
    """Lines of strace: the calls of the kind in question."""
    notes: list[list[str]] = field(default_factory=list)

    @property
    def refused(self) -> list[str]:
        """The calls that were made to fail."""
        return [line for line in self.calls if line.endswith("(INJECTED)")]

    def said(self, kind: str) -> list[str]:
        """What the child said of one kind."""
        return [text for name, text in self.notes if name == kind]


class Nursery(ForkingProcess):
    """The process that the children are forked from. A context manager."""

    def __init__(self, scratch: Path) -> None:
        self.root = scratch / "store"
        self._notes = scratch / "notes"
        self._trace = scratch / "trace"
        super().__init__("tests.torture.damage.child_failures")

    def run(self, calls: str, *options: str) -> Run:
        """Let a child live from the begin, with ``strace`` attached."""
        shutil.rmtree(self.root, ignore_errors=True)
        self._notes.unlink(missing_ok=True)
        child = int(self.ask(f"{self.root}\t{self._notes}"))
        command = ["strace", "-y", "-o", str(self._trace), "-e", f"trace={calls}", *options, "-p", str(child)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr is not None
            attached = strace.stderr.readline()
            status = os.waitstatus_to_exitcode(int(self.ask("live")))
            strace.stderr.read()
        assert "attached" in attached, attached
        lines = self._trace.read_text(errors="replace").splitlines()
        return Run(status, lines, list(self._said()))

    def _said(self) -> Iterator[list[str]]:
        for line in self._notes.read_text(errors="replace").splitlines():
            yield line.split(" ", 1)


def why_not() -> str:
    """Say why the rig cannot run here; empty when it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    probe = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    return f"strace may not trace here: {probe.stderr.strip()}" if probe.returncode else ""


def faults_of(clean: Run) -> list[Fault]:
    """Return every fault that the clean run offers, and one beyond it for each kind, which nothing meets."""
    counts = Counter(re.match(r"\w*", line)[0] for line in clean.calls)  # type: ignore[index]
    return [
        Fault(call, error, number, lasting)
        for call in CALLS
        for error in ERRORS
        for lasting in (False, True)
        for number in range(1, counts[call] + 2)
        if counts[call]
    ]


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Let so many calls fail, all that there are if ``rounds`` is as large, each in a life of its own."""
    if reason := why_not():
        return Result(CLAIM, skipped=reason)
    result = Result(CLAIM)
    count: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    with Nursery(scratch) as nursery:
        clean = nursery.run(",".join(CALLS))
        result.problems += [f"without a fault: {problem}" for problem in judge(nursery.root, clean)]
        faults = faults_of(clean)
        chosen = faults if rounds >= len(faults) else random.Random(seed).sample(faults, rounds)
        for done, fault in enumerate(chosen):
            if done % 500 == 499:
                print(f"{done + 1} of {len(chosen)}", flush=True)
            when = f"when={fault.number}{'+' if fault.lasting else ''}"
            outcome = nursery.run(fault.call, "-e", f"inject={fault.call}:error={fault.error}:{when}")
            for problem in judge(nursery.root, outcome):
                result.problems.append(f"{fault}: {problem}")
                print(result.problems[-1], flush=True)  # at once, because the whole run takes long
            errors.update(text.split(" ", 1)[0] for text in outcome.said("e"))
            count["runs"] += 1
            count["runs with a refused call"] += bool(outcome.refused)
            count["refused calls"] += len(outcome.refused)
            count["sent"] += len(outcome.said("o"))
            count["refused sends"] += len(outcome.said("r"))
            count["steps that told of it"] += len(outcome.said("e"))
    result.figures |= {"faults that there are": len(faults), **count, **dict(sorted(errors.items()))}
    result.figures["calls"] = len({fault.call for fault in faults})
    return result


def judge(root: Path, outcome: Run) -> list[str]:
    """Return what is wrong with one run, and with the store that it left."""
    problems = []
    if outcome.status == -signal.SIGALRM:
        problems.append("it hung")
    elif outcome.status:
        problems.append(f"it ended with {outcome.status}")
    problems += [f"said: {text}" for text in outcome.said("x") if not _is_pythons_own(outcome, text)]
    for check in (_what_is_delivered_again, _what_is_stored):
        problems += _attempt(lambda check=check: check(root, outcome))  # type: ignore[misc]
    return problems


def _is_pythons_own(outcome: Run, text: str) -> bool:
    """Tell whether the interpreter itself ran out of memory: the call that failed had nothing to do with a file."""
    return text.startswith("MemoryError ") and all("<" not in call for call in outcome.refused)


def _attempt(check: Callable[[], list[str]]) -> list[str]:
    try:
        return check()
    except (QueueError, OSError, AssertionError, ValueError, reference.BadStore) as error:
        return [f"afterwards: {type(error).__name__}: {error}"]


def _what_is_delivered_again(root: Path, outcome: Run) -> list[str]:
    """Open the store, which recovers it, and take everything; after a failed flush that is what the disk has."""
    with open_store(root, housekeeping=False) as store:
        if not store.topics.all_queues():
            return []
        taken = {message.queue_offset for message in grant_of(store).take(SPAN, SPAN)}
    if any(text.startswith("StorePoisoned ") for text in outcome.said("e")):
        return []
    again = taken & {int(offset) for offset in outcome.said("a")}
    return [f"acknowledged and delivered again: {sorted(again)}"] if again else []


def _what_is_stored(root: Path, outcome: Run) -> list[str]:
    stored = [number_of(body) for body in stored_bodies(root)]
    invoked, sent, refused = ({int(number) for number in outcome.said(kind)} for kind in "ior")
    problems = [f"verify: {problem}" for problem in verify(root)] + reference.check_store(root)
    if lost := sent - set(stored):
        problems.append(f"lost: {sorted(lost)}")
    if phantom := set(stored) - invoked | set(stored) & refused:
        problems.append(f"stored and never sent, or refused: {sorted(phantom)}")
    if stored != sorted(set(stored)):
        problems.append(f"stored twice or in another order: {stored}")
    return problems


RIG = Rig("nth-failure", 20_000, run)
