"""What stood still is not blamed: the time of a message is the time in which its process ran."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from rmqclient.workers.processes.standing import Standing, is_stopped
from tests.client.conftest import wait_for

PID = os.getpid()


def test_time_in_which_the_supervisor_stood_still_counts_for_no_message() -> None:
    # Given a supervisor that looks four times a second, and stands still for 15 s
    standing = Standing(now=100.0)
    for quarter in range(5):
        standing.look([PID], now=100.0 + quarter / 4)
    standing.look([PID], now=116.0)

    # Then a message that began before has run for the rest of its age
    assert standing.running_s(PID, age_s=16.0, now=116.0) == 1.0
    assert standing.running_s(PID, age_s=5.0, now=116.0) == 0.0

    # And one that began behind it has run for all of it
    assert standing.running_s(PID, age_s=2.0, now=118.0) == 2.0


def test_a_worker_that_is_stopped_alone_uses_no_time() -> None:
    # Given a process that is stopped
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        wait_for(lambda: is_stopped(process.pid), "it is stopped")

        # When the supervisor looks
        standing = Standing(now=100.0)
        standing.look([process.pid, PID], now=101.0)

        # Then that second counts for it no more than for nobody
        assert standing.running_s(process.pid, age_s=1.0, now=101.0) == 0.0
        assert standing.running_s(PID, age_s=1.0, now=101.0) == 1.0
    finally:
        process.kill()
        process.communicate()
