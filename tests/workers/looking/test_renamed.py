"""A directory that is renamed under running processes: `rmq check` says so at its old name and at its new one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import Producer, StoreConfig
from tests.workers.supervised import COMMAND, environment, eventually

SENDS = """\
import sys
from rmqclient import Producer, StoreConfig
producer = Producer(sys.argv[1], config=StoreConfig.small())
producer.send("orders", b"one")
print("sent", flush=True)
input()
"""


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the store ``old`` open."""
    command = [sys.executable, "-c", SENDS, str(tmp_path / "old")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sent\n"
        yield process
        process.kill()


def checked(root: Path) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, "check", "--store", str(root)], env=environment(), capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_both_names_tell_of_it_until_its_processes_have_ended(sender: subprocess.Popen[str], tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    assert "renamed" not in checked(old)[1]

    # When the directory gets another name
    old.rename(new)

    # Then a check of the new one is critical, and names the process
    eventually(lambda: "replaced" in checked(new)[1], "the new name tells of it")
    code, text = checked(new)
    assert (code, f"process {sender.pid} " in text) == (1, True)

    # And so does one of the old one, at which nothing stands
    code, text = checked(old)
    assert (code, f"process {sender.pid} " in text, str(new) in text) == (3, True, True)

    # And when the process has ended, and another one uses the new name, all is well
    sender.communicate("\n")
    with Producer(new, config=StoreConfig.small()) as producer:
        producer.send("orders", b"two")
        assert "replaced" not in checked(new)[1]
        assert str(new) not in checked(old)[1]
