"""A command on a terminal of its own, which somebody reads all the time, and whom Ctrl-C reaches."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

DEADLINE_S = 90.0
"""For what is awaited of a command, and for its end."""

_HEARS_CTRL_C = ("env", "--default-signal=INT")
"""The tests may run in the background of a shell, which lets its jobs ignore SIGINT, and children inherit that."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """One line of bash that runs; ``printed`` is what it has printed so far. A context manager, which ends it."""

    def __init__(self, line: str, directory: Path, environment: Mapping[str, str]) -> None:
        ours, its = pty.openpty()
        self._child = subprocess.Popen(
            [*_HEARS_CTRL_C, "bash", "-c", line],
            cwd=directory,
            env=environment,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)
        self.printed = ""
        self._changed = threading.Condition()
        self._is_read = False
        self._reader = threading.Thread(target=self._read, args=(ours,))
        self._reader.start()

    def wait_for(self, condition: Callable[[str], bool]) -> None:
        """Wait until what was printed fulfils a condition, until the end of the command, or until the deadline."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_read or condition(self.printed), DEADLINE_S)

    def interrupt(self) -> None:
        """Press Ctrl-C, which the command alone gets: workers have a process group of their own."""
        self._child.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Wait for the end, and return the exit code; what has not ended by the deadline is killed."""
        until = time.monotonic() + DEADLINE_S
        self._reader.join(DEADLINE_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(max(until - time.monotonic(), 0))
        self._tell_all(signal.SIGKILL)
        self._reader.join()
        return self._child.wait()

    def close(self) -> None:
        """End what still runs, as the end of a terminal does."""
        if self._reader.is_alive():
            self._tell_all(signal.SIGINT)
        self.end()

    def _read(self, ours: int) -> None:
        read = b""
        with contextlib.suppress(OSError), open(ours, "rb", buffering=0) as terminal:  # EIO: all have ended
            while part := terminal.read(65_536):
                read += part
                with self._changed:
                    self.printed = _COLOUR.sub("", read.decode(errors="replace").replace("\r\n", "\n"))
                    self._changed.notify_all()
        with self._changed:
            self._is_read = True
            self._changed.notify_all()

    def _tell_all(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
