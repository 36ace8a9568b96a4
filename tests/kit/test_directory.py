"""What a killed test leaves in memory: the next kit removes it, and touches nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqclient.testing import directory
from rmqclient.testing.directory import PREFIX, kit_directory


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for directories of kits that no other test has."""
    monkeypatch.setattr(directory, "MEMORY", tmp_path)
    return tmp_path


@contextmanager
def killed_after() -> Iterator[Path]:
    """Return the directory of a process that lives during the block; it is killed then."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with kit_directory() as root:
            (root / "store").mkdir()
            (root / "store" / "shared").write_bytes(b"x")
            os.write(writing, os.fsencode(root))
            signal.pause()
        os._exit(1)
    os.close(writing)
    try:
        yield Path(os.fsdecode(os.read(reading, 4096)))
    finally:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_kit_removes_what_a_killed_one_left_and_never_what_a_living_one_has() -> None:
    with killed_after() as root, kit_directory() as other:
        assert (root / "store" / "shared").exists()
        assert other.parent == root.parent
    assert root.exists()
    with kit_directory():
        assert not root.exists()


def test_a_directory_that_does_not_say_who_owns_it_is_left_alone(memory: Path) -> None:
    strange = memory / f"{PREFIX}0"
    strange.mkdir()
    with kit_directory():
        pass
    assert [*memory.iterdir()] == [strange]


def test_a_kit_has_a_directory_while_it_lives(memory: Path) -> None:
    with kit_directory() as root, kit_directory() as other:
        assert {root, other} == {*memory.iterdir()}
    assert not [*memory.iterdir()]
