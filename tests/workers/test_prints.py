"""What a handler prints into a file or a pipe: it is there while the handler runs, and no kill takes it along."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

import pytest

from tests.workers.supervised import COMMAND, Supervised

INTO_A_PIPE = ("sh", "-c", 'env -u PYTHONUNBUFFERED "$0" "$@" | cat', *COMMAND)
INTO_A_FILE = ("env", "-u", "PYTHONUNBUFFERED", *COMMAND)


@pytest.mark.parametrize("command", [INTO_A_FILE, INTO_A_PIPE], ids=["file", "pipe"])
def test_what_a_handler_prints_is_there_at_once_and_stays(
    supervise: Callable[..., Supervised], command: Sequence[str]
) -> None:
    # Given a handler that prints a line and goes on
    supervised = supervise("printing", "--processes", "1", command=command)
    pid = supervised.ready(1)[1]
    supervised.send("before")
    supervised.logged("printed before")

    # When its process is killed, and the next one kills itself right behind its line
    os.kill(pid, signal.SIGKILL)
    supervised.replaced(1, pid)
    supervised.send("death")

    # Then each line is there
    supervised.logged("printed death")
    assert supervised.log.count("printed before") == 1
