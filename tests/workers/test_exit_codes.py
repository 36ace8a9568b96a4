"""The end of a worker in words."""

from __future__ import annotations

import signal

import pytest

from rmqclient.workers.exit_codes import WorkerExit, in_words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGKILL, "killed by SIGKILL: by a person, or because memory ran out"),
        (-signal.SIGBUS, "killed by SIGBUS: a store file was shortened or cannot be read"),
        (-signal.SIGTERM, "killed by SIGTERM"),
        (-(signal.SIGRTMIN + 3), f"killed by signal {signal.SIGRTMIN + 3}"),
        (0, "stopped, nothing left in flight"),
        (WorkerExit.UNFINISHED, "stopped at its deadline with messages in flight"),
        (WorkerExit.CANNOT_BOOT, "its handlers cannot be loaded"),
        (WorkerExit.NAME_TAKEN, "another process has its member name, see the log above"),
        (WorkerExit.REFUSED, "refused by a group whose members have another subscription, see the log above"),
        (7, "exit code 7"),
        (255, "exit code 255, or its fork server was killed"),
        (None, "could not be started"),
    ],
)
def test_an_exit_code_in_words(code: int | None, words: str) -> None:
    assert in_words(code) == words


def test_every_exit_of_a_worker_has_words_of_its_own() -> None:
    assert not any(in_words(code).startswith("exit code") for code in WorkerExit)
