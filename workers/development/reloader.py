"""Reloader: starts the process of the handlers, and starts it anew when a file has changed.

::

    no process ──start──► running ──a file has changed: SIGTERM, and SIGKILL when the time is up──► start
                             │
                             └── it ended by itself: its error is on the screen ──a file has changed──► start

Nothing but a signal ends it: no error of the application, no file that cannot be parsed, no handler that hangs. Only a
target that was wrong from the beginning does, because no saved file would mend what was typed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rmqclient.workers.development.changes import Changes
from rmqclient.workers.development.child import READY, Boot
from rmqclient.workers.development.terminal import say, say_dim
from rmqclient.workers.exit_codes import ExitCode, WorkerExit, in_words
from rmqclient.workers.processes.signals import SignalPipe

LOOK_EVERY_S = 0.2
_LOOKS_SHARE = 10
"""Looks take at most one part in so many of the time."""

_KILL_AFTER_S = 1.0
"""How much longer than its handlers may run the process itself has to end."""

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Reloader:
    """One run of ``rmq dev``. ``watched`` are directories or files."""

    def __init__(self, boot: Boot, watched: Sequence[Path], pipe: SignalPipe) -> None:
        self._boot = boot
        self._pipe = pipe
        self._changes = Changes(watched)
        self._pause_s = LOOK_EVERY_S
        self._process: _Process | None = None
        self._was_ready = False

    def run(self) -> ExitCode:
        """Run until a signal comes. Returns USAGE at once if the target names no application."""
        self._start()
        while True:
            if self._is_told_to_stop():
                self._end()
                return ExitCode.OK
            if self._process is not None and (code := self._look_at(self._process)) is not None:
                return code
            began = time.monotonic()
            changed = self._changes.settled()
            self._pause_s = max(LOOK_EVERY_S, (time.monotonic() - began) * _LOOKS_SHARE)
            if changed:
                say(say_dim(f"changed: {', '.join(map(_short, changed[:3]))}{' ...' if len(changed) > 3 else ''}"))
                self._end()
                self._start()

    def _start(self) -> None:
        boot = replace(self._boot, has_wipe=False) if self._was_ready else self._boot
        self._process = _Process(boot)

    def _is_told_to_stop(self) -> bool:
        """Wait for a signal, for an end of the process, or until it is time to look at the files again."""
        of_process = [] if self._process is None else [self._process.sentinel]
        ready, _, _ = select.select([self._pipe.fileno(), *of_process], [], [], self._pause_s)
        return self._pipe.fileno() in ready and bool(self._pipe.read())

    def _look_at(self, process: _Process) -> ExitCode | None:
        """Notice that the process is ready, or has ended; return the exit code if that is the end of it all."""
        self._was_ready = self._was_ready or process.is_ready()
        code = process.exit_code()
        if code is None:
            return None
        process.close()
        self._process = None
        if code == ExitCode.USAGE and not self._was_ready:
            return ExitCode.USAGE
        if code not in (WorkerExit.CANNOT_BOOT, WorkerExit.FAILED, ExitCode.USAGE):
            say(f"the process of the handlers ended: {in_words(code)}")
        say(say_dim("waiting for a change of a file"))
        return None

    def _end(self) -> None:
        """End the process: it may finish its messages; a second signal, or the end of the time, kills it."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send(signal.SIGTERM)
        limit_s = self._boot.drain_timeout_s + _KILL_AFTER_S
        ready, _, _ = select.select([process.sentinel, self._pipe.fileno()], [], [], limit_s)
        if process.sentinel not in ready:
            say("killed: it did not end by itself" if not ready else "killed")
            process.send(signal.SIGKILL)
        self._was_ready = self._was_ready or process.is_ready()
        process.close()


class _Process:
    """The process of the handlers, started at once in a fresh interpreter."""

    def __init__(self, boot: Boot) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        with theirs:
            arguments = replace(boot, control=theirs.fileno()).packed()
            # -P: a file of the application has the name of none of our modules; -B: two versions may be of one second
            command = [sys.executable, "-P", "-B", "-m", "rmqclient.workers.development.child", arguments]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self.sentinel = os.pidfd_open(self._process.pid)

    def is_ready(self) -> bool:
        """Tell whether the process has said that it imported the application, since the last call."""
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            return self._socket.recv(1) == READY
        return False

    def exit_code(self) -> int | None:
        """Return the exit code, or the negative number of the killing signal; None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process is gone."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Wait for the end, and free what the process had here."""
        self._process.wait()
        os.close(self.sentinel)
        self._socket.close()


def _short(name: str) -> str:
    """Return a path from the working directory, when it is below."""
    path = Path(name)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else name
