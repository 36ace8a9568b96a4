"""Threads: what the threads of a worker run, read from the stacks that it wrote: those of handlers first.

``faulthandler`` writes threads without a name, and frames without the text of their lines. So a thread that calls a
handler is known by the frame of :mod:`rmqclient.delivery.runner`, and the text is read from the file, unless that was
written after the process began: then its lines may be others.

Which of several threads runs which message is written nowhere: that would cost each message of each handler. With one
thread and one message it is certain, and said; otherwise the places and the messages are said beside each other.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rmqclient.failures import frames
from rmqclient.health.words import age
from rmqclient.store import boottime, clock
from rmqclient.store.observe.observation import Call

_RUNNER = ("/rmqclient/delivery/runner.py", "run")
_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+).*\(most recent call first\):$")
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')
_STARTED = 19
"""Where the time of a process's start stands behind its name, in ticks since the boot. [proc_pid_stat(5), field 22]"""
_SAID = 3
"""Places or messages that a sentence has at most."""


class Frame(NamedTuple):
    """One call in a stack."""

    path: str
    line: int
    """From 1 on; 0 where the process could not say."""
    function: str
    is_own: bool
    """Whether it is code of the application: neither Python's nor that of an installed package."""

    @property
    def place(self) -> str:
        """The name of its file, with the line: ``charge.py:41``."""
        return f"{Path(self.path).name}:{self.line}"


class Thread(NamedTuple):
    """One thread of a worker."""

    ident: str
    frames: tuple[Frame, ...]
    """The most recent call first."""
    has_call: bool
    """Whether it calls a handler now."""

    @property
    def stands_in(self) -> Frame | None:
        """The application's most recent call; None in a thread that runs nothing of it."""
        return next((frame for frame in self.frames if frame.is_own), None)


def threads_in(stacks: str) -> list[Thread]:
    """Return the threads in what a worker wrote: those that call handlers, others of the application, then the rest."""
    found: list[tuple[str, list[Frame]]] = []
    for text in stacks.splitlines():
        if thread := _THREAD.match(text):
            found.append((thread[1], []))
        elif found and (frame := _FRAME.match(text)):
            found[-1][1].append(_frame(frame[1], frame[2], frame[3]))
    threads = [Thread(ident, tuple(frames), any(map(_calls_handler, frames))) for ident, frames in found]
    return sorted(threads, key=lambda each: (not each.has_call, each.stands_in is None))


def standing(name: str, threads: Iterable[Thread], calls: Sequence[Call]) -> str:
    """Return where a worker stands and with what, in a sentence; ``calls`` are its own, the longest first.

    Such as ``worker-3 stands in charge.py:41 (charge) for 18 min, with message orders/0/12 of group thumbnails``.
    """
    calling = [each for each in threads if each.has_call]
    places = list(dict.fromkeys(_said(frame) for each in calling if (frame := each.stands_in)))
    if not calls:
        return f"{name} runs no message" + (f"; it was just in {_listed(places)}" if places else "")
    messages = _listed([_message(each, with_age=len(calls) > 1) for each in calls])
    if not places:
        waits = "no thread is in code of the application: an async handler waits, or a library works for it"
        return f"{name} runs {messages}{f' for {age(calls[0].age_s)}' if len(calls) == 1 else ''}; {waits}"
    if len(calls) == 1:
        return f"{name} stands in {_listed(places)} for {age(calls[0].age_s)}, with message {messages}"
    return f"{name} stands in {_listed(places)}, with messages {messages}"


def source_of(frame: Frame, began_s: float) -> str:
    """Return the text of a frame's line; empty if its file is not here, or was written after ``began_s``.

    ``began_s`` is when the process began, in seconds since 1970.
    """
    try:
        if Path(frame.path).stat().st_mtime > began_s:
            return ""
    except (OSError, ValueError):
        return ""
    linecache.checkcache(frame.path)
    return linecache.getline(frame.path, frame.line).strip()


def began_s(pid: int) -> float:
    """Return when a process of this host began, in seconds since 1970. Raises OSError if it has ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    after_boot_s = int(fields[_STARTED]) / os.sysconf("SC_CLK_TCK")
    return clock.wall_ms() / 1000 - boottime() / 1e9 + after_boot_s


def _frame(path: str, line: str, function: str) -> Frame:
    number = int(line) if line.isdecimal() else 0
    return Frame(path, number, function, frames.Frame(path, number, function, "").is_own)


def _calls_handler(frame: Frame) -> bool:
    path, function = _RUNNER
    return frame.function == function and frame.path.endswith(path)


def _said(frame: Frame) -> str:
    return f"{frame.place} ({frame.function})"


def _message(call: Call, *, with_age: bool) -> str:
    said = f"{call.queue.topic}/{call.queue.queue_id}/{call.queue_offset} of group {call.group}"
    return f"{said} for {age(call.age_s)}" if with_age else said


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _SAID
    return ", ".join(words[:_SAID]) + (f" and {more} more" if more > 0 else "")
