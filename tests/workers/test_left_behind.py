"""What handlers start, what an application does with signals, and what is left of a worker at its end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.workers.processes.left_behind import DEATH_TOLD_S
from tests.workers.supervised import COMMAND, Supervised, eventually, runs

Supervise = Callable[..., Supervised]


@pytest.mark.guarantee("G105")
def test_what_a_dead_worker_had_started_does_not_run_beside_the_next_attempt(supervise: Supervise) -> None:
    # Given a handler that starts a process, and takes its worker down
    supervised = supervise("starting_processes", "--processes", "1")
    supervised.ready(1)
    supervised.send("die")
    # When the message was handled again
    supervised.recorded("done die")
    # Then the process is gone
    (pid,) = _started(supervised)
    eventually(lambda: not runs(pid), "the end of the process", supervised)


def test_what_a_worker_had_started_is_killed_in_a_group_and_a_session_of_its_own_too(supervise: Supervise) -> None:
    supervised = supervise("starting_processes", "--processes", "1")
    supervised.ready(1)
    supervised.send("detach")
    supervised.recorded("done detach")
    (pid,) = _started(supervised)
    eventually(lambda: not runs(pid), "the end of the process", supervised)


def test_a_daemon_that_a_handler_started_long_ago_outlives_the_worker(supervise: Supervise) -> None:
    # Given a daemon, which is the supervisor's since its parent ended, and a worker that is still there
    supervised = supervise("starting_processes", "--processes", "1")
    (worker,) = supervised.ready(1).values()
    supervised.send("daemon")
    supervised.recorded("done daemon")
    (pid,) = _started(supervised)
    seen = time.monotonic()
    eventually(lambda: time.monotonic() > seen + 2 * DEATH_TOLD_S, "the time", supervised)
    # When the worker is killed
    os.kill(worker, signal.SIGKILL)
    supervised.replaced(1, worker)
    # Then the daemon runs
    assert runs(pid)
    os.kill(pid, signal.SIGKILL)
    # And its end is taken when it comes
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "nothing of the daemon", supervised)


def test_workers_and_what_they_start_stand_still_and_go_on_with_the_group_of_the_supervisor(
    supervise: Supervise,
) -> None:
    supervised = supervise("starting_processes", "--processes", "1")
    (worker,) = supervised.ready(1).values()
    supervised.tell_group(signal.SIGSTOP)  # what Ctrl-Z comes to
    eventually(lambda: _state(worker) == "T", "a worker that stands still", supervised)
    supervised.tell_group(signal.SIGCONT)
    supervised.send("hello")
    assert supervised.recorded("done hello") == worker


def test_a_process_that_a_handler_starts_can_be_interrupted(supervise: Supervise) -> None:
    supervised = supervise("starting_processes", "--processes", "1")
    supervised.ready(1)
    supervised.send("interrupt")
    supervised.recorded("done interrupt")
    assert f"ended {-signal.SIGINT}" in _texts(supervised)


def test_signal_handlers_of_the_application_cut_no_message_off_and_its_exit_functions_run(
    supervise: Supervise, tmp_path: Path
) -> None:
    # Given an application that ends at SIGTERM and SIGINT, and a message whose handler runs
    supervised = supervise("starting_processes", "--processes", "1")
    (worker,) = supervised.ready(1).values()
    supervised.send(f"wait {tmp_path / 'go'}")
    supervised.recorded("began wait")
    # When everybody is told to stop, the worker itself included
    os.kill(worker, signal.SIGINT)
    os.kill(worker, signal.SIGTERM)
    supervised.tell_group(signal.SIGTERM)
    supervised.logged("stopping: messages in flight")
    (tmp_path / "go").touch()
    # Then the message is finished, and what is registered with atexit has run
    assert supervised.exit_code() == 0
    assert supervised.records("done wait") == [worker]
    assert supervised.records("atexit") == [worker]


def test_a_supervisor_that_nohup_started_outlives_its_terminal(supervise: Supervise) -> None:
    supervised = supervise("starting_processes", "--processes", "1", command=("nohup", *COMMAND))
    (worker,) = supervised.ready(1).values()
    supervised.tell_group(signal.SIGHUP)
    os.kill(worker, signal.SIGHUP)
    supervised.send("hello")
    assert supervised.recorded("done hello") == worker


def _texts(supervised: Supervised) -> list[str]:
    return [line.split(" ", 1)[1] for line in supervised.record_path.read_text(encoding="utf-8").splitlines()]


def _started(supervised: Supervised) -> set[int]:
    return {int(text.removeprefix("started ")) for text in _texts(supervised) if text.startswith("started ")}


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
