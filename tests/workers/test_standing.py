"""What stood still is not blamed: the time of a message is the time in which its process ran."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.store.clock import boottime
from rmqclient.workers.processes.standing import Standing, is_stopped
from tests.client.conftest import wait_for
from tests.workers.supervised import Supervised, eventually

PID = os.getpid()
S = 1_000_000_000


def test_time_in_which_the_supervisor_stood_still_counts_for_no_message() -> None:
    # Given a supervisor that looks four times a second, and stands still for 15 s
    standing = Standing(now=100 * S)
    for quarter in range(5):
        standing.look([PID], now=100 * S + quarter * S // 4)
    standing.look([PID], now=116 * S)

    # Then a message that began before has run for the rest of its age, and for the half second to a late look
    assert standing.running_s(PID, age_s=16.0, now=116 * S) == 1.5
    assert standing.running_s(PID, age_s=5.0, now=116 * S) == 0.0

    # And so is the age of a heartbeat, and the supervisor's own time
    assert standing.watched_s(16.0, now=116 * S) == standing.ran_s(now=116 * S) == 1.5

    # And one that began behind it has run for all of it
    assert standing.running_s(PID, age_s=0.5, now=116 * S + S // 2) == 0.5


def test_a_worker_that_is_stopped_alone_uses_no_time() -> None:
    # Given a process that is stopped
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        wait_for(lambda: is_stopped(process.pid), "it is stopped")

        # When the supervisor looks
        standing = Standing(now=100 * S)
        standing.look([process.pid, PID], now=101 * S)

        # Then that second counts for it no more than for nobody
        assert standing.running_s(process.pid, age_s=1.0, now=101 * S) == 0.0
        assert standing.running_s(PID, age_s=1.0, now=101 * S) == 1.0

        # And it is not excused for its silence
        assert standing.watched_s(1.0, now=101 * S) == 1.0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.sweep
@pytest.mark.guarantee("G91")
def test_after_a_pause_of_everything_a_message_goes_on_where_it_was(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    # Given two workers, one of which handles a message
    supervised = supervise("obedient", "--processes", "2", "--time-limit", "8s", "--beat-timeout", "3s")
    supervised.ready(2)
    supervised.send(f"wait {tmp_path / 'go'}")
    supervised.recorded("began wait")

    # When all processes stand still past its time limit, their leases and their heartbeats
    supervised.tell_group(signal.SIGSTOP)
    stopped_at = boottime()
    eventually(lambda: boottime() - stopped_at > 12 * S, "the end of the pause")
    supervised.tell_group(signal.SIGCONT)

    # Then it is handled once, by the worker that began it
    (tmp_path / "go").touch()
    supervised.recorded("done wait")
    supervised.send("hello")
    supervised.recorded("done hello")
    assert supervised.records("began wait") == supervised.records("done wait")
    assert "hung" not in supervised.log
    assert "taken by another member" not in supervised.log
