"""Journal: what a process ran when it was killed, as the next owner of its queue on this host reads it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from rmqclient.cluster.groups import journal as journals
from rmqclient.cluster.groups.journal import SLOTS, Journal
from rmqclient.store import MessageQueue
from rmqclient.store.errors import TableFull
from tests.support.host.small_disks import Filler, small_disk_or_skip

GROUP = "billing"
QUEUE = MessageQueue("orders", 3, "broker-a")

KILLED = """
import sys
from pathlib import Path
from types import SimpleNamespace
from rmqclient.cluster.groups.journal import Journal
from rmqclient.store import MessageQueue

journal = Journal(Path(sys.argv[1]), "killed@host", [("billing", MessageQueue("orders", 3, "broker-a"))].__getitem__)
slot = journal.slot()
slot.serve(0, 1)
first, last, attempt = (int(word) for word in sys.argv[2:])
messages = [
    SimpleNamespace(queue_offset=at, delivery_attempt=attempt, reconsume_times=0) for at in range(first, last + 1)
]
slot.begin(messages[0]) if len(messages) == 1 else slot.begin_batch(messages)
print("begun", flush=True)
sys.stdin.read()
"""

TAKING = """
import sys
from pathlib import Path
from rmqclient.cluster.groups.journal import Journal
from rmqclient.store.errors import StoreFull

def another():
    return Journal(Path(sys.argv[1], "another"), "another@host", {}.__getitem__)

journal = Journal(Path(sys.argv[1], "running"), "client@host", {}.__getitem__)
print("made", flush=True)
for line in sys.stdin:
    try:
        if line == "slots\\n":
            for _ in range(40):
                journal.slot()
        else:
            another()
    except StoreFull:
        print("StoreFull", flush=True)
    else:
        print("taken", flush=True)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "running"


@pytest.fixture
def journal(directory: Path) -> Journal:
    return Journal(directory, "living@host", lambda _number: (GROUP, QUEUE))


def killed_with(directory: Path, first: int, last: int, attempt: int = 1) -> None:
    """Run a process that begins these messages, and kill it."""
    command = [sys.executable, "-c", KILLED, str(directory), str(first), str(last), str(attempt)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGKILL)


def test_a_killed_process_leaves_what_it_ran(directory: Path) -> None:
    killed_with(directory, 7, 7, attempt=2)
    deaths = Journal(directory, "next", lambda _number: (GROUP, QUEUE)).deaths(GROUP, QUEUE, 0)
    assert {offset: [(each.begun, each.client_id) for each in found] for offset, found in deaths.items()} == {
        7: [(2, "killed@host")]
    }


def test_every_message_of_a_batch_counts(directory: Path, journal: Journal) -> None:
    killed_with(directory, 10, 13)
    assert sorted(journal.deaths(GROUP, QUEUE, 12)) == [12, 13]
    assert not journal.deaths(GROUP, MessageQueue("orders", 2, "broker-a"), 0)
    assert not journal.deaths("other", QUEUE, 0)


def test_the_last_of_two_deaths_comes_last(directory: Path, journal: Journal) -> None:
    killed_with(directory, 7, 7, attempt=2)
    killed_with(directory, 7, 7, attempt=1)
    assert [death.begun for death in journal.deaths(GROUP, QUEUE, 0)[7]] == [1, 2]


def test_a_finished_message_is_forgotten(directory: Path, journal: Journal) -> None:
    killed_with(directory, 7, 7)
    journal.forget(GROUP, QUEUE, 7)
    assert journal.deaths(GROUP, QUEUE, 0)
    journal.forget(GROUP, QUEUE, 8)
    assert not journal.deaths(GROUP, QUEUE, 0)
    assert not Journal(directory, "later", lambda _number: (GROUP, QUEUE)).deaths(GROUP, QUEUE, 0)


def test_a_dead_client_is_known_by_its_id_and_a_living_one_is_not_dead(directory: Path, journal: Journal) -> None:
    other = Journal(directory, "beside@host", lambda _number: (GROUP, QUEUE))
    killed_with(directory, 1, 1)
    assert journal.dead_clients() == {"killed@host"}
    other.close()


def test_a_journal_that_is_closed_leaves_nothing(directory: Path, journal: Journal) -> None:
    journal.slot().serve(0, 1)
    journal.close()
    assert not list(directory.iterdir())


def test_a_thread_that_is_left_behind_keeps_its_entry(directory: Path) -> None:
    killed_with(directory, 5, 5)
    assert [path.suffix for path in directory.iterdir()] == [".journal"]
    Journal(directory, "next", lambda _number: (GROUP, QUEUE)).dead_clients()
    assert sorted(path.suffix for path in directory.iterdir()) == [".dead", ".journal"]


def test_a_dead_journal_is_read_again_only_when_it_has_changed(
    directory: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "_LOOK_AGAIN_S", 0.0)
    known, read = Path.read_bytes, list[str]()

    def read_bytes(path: Path) -> bytes:
        read.append(path.suffix)
        return known(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    # Given a process that was killed
    killed_with(directory, 7, 7)
    # When its journal is looked at again and again, then it is read once
    for _ in range(5):
        assert journal.deaths(GROUP, QUEUE, 0)
    assert read == [".dead"]
    # And when another member has forgotten the death, it is read once more
    Journal(directory, "other", lambda _number: (GROUP, QUEUE)).forget(GROUP, QUEUE, 8)
    read.clear()
    for _ in range(5):
        assert not journal.deaths(GROUP, QUEUE, 0)
    assert read == [".dead"]


def test_damaged_and_foreign_files_are_passed_over(directory: Path, journal: Journal) -> None:
    (directory / "a.dead").write_bytes(b"")
    (directory / "notes.txt").write_text("mine")
    killed_with(directory, 1, 1)
    assert journal.deaths(GROUP, QUEUE, 0)


def test_slots_are_used_again_and_limited(journal: Journal) -> None:
    slots = [journal.slot() for _ in range(SLOTS)]
    with pytest.raises(TableFull, match="4096"):
        journal.slot()
    slots[0].release()
    journal.slot()


def test_a_slot_on_a_full_disk_is_refused_and_has_room_later(tmp_path: Path) -> None:
    # Given a client that has a journal when the disk gets full
    with (
        small_disk_or_skip(tmp_path) as disk,
        subprocess.Popen(
            [sys.executable, "-c", TAKING, str(disk)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as client,
    ):
        taking, told = client.stdin, client.stdout
        assert taking is not None
        assert told is not None
        assert told.readline() == "made\n"
        filler = Filler(disk)
        filler.fill()

        # When it needs more slots than there is room for, then it is told so, and lives
        assert _asked(taking, told, "slots") == "StoreFull\n"
        assert _asked(taking, told, "another") == "StoreFull\n"

        # And when there is room, it gets them
        filler.free()
        assert _asked(taking, told, "slots") == "taken\n"
        assert _asked(taking, told, "another") == "taken\n"
        taking.close()
    assert client.returncode == 0


def _asked(taking: IO[str], told: IO[str], what: str) -> str:
    taking.write(what + "\n")
    taking.flush()
    return told.readline()
