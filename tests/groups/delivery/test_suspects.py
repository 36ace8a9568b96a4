"""A message that kills its process takes none of those along that ran beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient import Producer
from rmqclient.failures.dead_letters import Selection, select
from rmqclient.store import MessageStore, open_store
from tests.client.conftest import wait_for
from tests.groups.processes.neighbours import GROUP, MODES

GOOD = 6


@pytest.mark.sweep
@pytest.mark.guarantee("G102")
@pytest.mark.parametrize("mode", MODES)
def test_what_runs_beside_a_message_that_kills_its_process_is_handled(tmp_path: Path, mode: str) -> None:
    # Given good messages among two that kill their process, side by side in each process
    root, journal = tmp_path / "store", tmp_path / "journal"
    with open_store(root) as store, Producer(store) as producer:
        for topic in ("orders", "refunds"):
            producer.create_topic(topic, 1)
        bodies = ["bad 0", *[f"good {number}" for number in range(GOOD // 2)]]
        bodies += ["bad 1", *[f"good {number}" for number in range(GOOD // 2, GOOD)]]
        for number, body in enumerate(bodies):
            topic = ("orders", "refunds")[number % 2 if mode == "two handlers" else 0]
            producer.send(topic, body, sharding_key=body)

        # When processes consume them, each of which is followed by another one when it dies
        member = Member(root, journal, mode)
        try:
            wait_for(lambda: member.goes_on() and is_settled(store, journal), "all have an end", timeout_s=60)
        finally:
            member.end()

        # Then each good message is handled, and the others alone are dead letters
        assert sorted(letters(store)) == ["bad 0", "bad 1"]
    assert {line.removeprefix("end ") for line in ended(journal)} == {f"good {number}" for number in range(GOOD)}


class Member:
    """A consumer process, and another one when it has died."""

    def __init__(self, root: Path, journal: Path, mode: str) -> None:
        self._command = [sys.executable, "-m", "tests.groups.processes.neighbours", str(root), str(journal), mode]
        self._process = subprocess.Popen(self._command)

    def goes_on(self) -> bool:
        """Tell that a process runs, and start one if none does."""
        if self._process.poll() is not None:
            self._process = subprocess.Popen(self._command)
        return True

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def is_settled(store: MessageStore, journal: Path) -> bool:
    return len(set(ended(journal))) + len(letters(store)) >= GOOD + 2


def letters(store: MessageStore) -> list[str]:
    return [letter.message.body.decode() for letter in select(store, GROUP, Selection())]


def ended(journal: Path) -> list[str]:
    return [line for line in journal.read_text().splitlines() if line.startswith("end")] if journal.exists() else []
