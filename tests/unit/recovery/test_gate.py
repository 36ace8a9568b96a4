"""The gate: whoever comes through it behind a process that leaves finds the store as that has left it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from rmqclient.store import message_store, open_store
from rmqclient.store.errors import LimitReached, StoreFull
from rmqclient.store.files.file_lock import GATE_BYTE, LockFile
from rmqclient.store.recovery import opening, replica
from rmqclient.store.recovery.recovery import ABORT
from rmqclient.store.runtime import shared_state
from tests.support.stores import SMALL


def behind_the_gate(monkeypatch: pytest.MonkeyPatch, come: Callable[[], object]) -> None:
    """Let somebody come at the moment in which the gate is free again, once."""
    real, coming = LockFile.held, [come]

    @contextmanager
    def held(lock: LockFile, byte: int, timeout_s: float = 5.0) -> Iterator[None]:
        try:
            with real(lock, byte, timeout_s):
                yield
        finally:
            if byte == GATE_BYTE and coming:
                coming.pop()()

    monkeypatch.setattr(LockFile, "held", held)


def opened_and_closed(root: Path) -> None:
    open_store(root, SMALL, housekeeping=False).close()


def test_a_store_can_be_opened_while_the_last_process_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path, SMALL, housekeeping=False)
    behind_the_gate(monkeypatch, lambda: opened_and_closed(tmp_path))
    store.close()


def test_one_of_two_that_leave_at_once_is_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = (open_store(tmp_path, SMALL, housekeeping=False) for _ in range(2))
    behind_the_gate(monkeypatch, other.close)
    store.close()
    assert not (tmp_path / ABORT).exists()


def test_a_store_can_be_opened_while_one_leaves_that_could_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_and_closed(tmp_path)

    def come() -> None:
        monkeypatch.undo()
        opened_and_closed(tmp_path)

    def recover(*_: object) -> None:
        raise StoreFull("planted")

    monkeypatch.setattr(opening, "_recover", recover)
    behind_the_gate(monkeypatch, come)
    with pytest.raises(StoreFull, match="planted"):
        open_store(tmp_path, SMALL, housekeeping=False)


def test_a_store_can_be_opened_behind_one_who_had_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_and_closed(tmp_path)
    behind_the_gate(monkeypatch, lambda: opened_and_closed(tmp_path))
    with replica._alone(tmp_path):
        pass


@pytest.mark.parametrize(("module", "step"), [(shared_state, "attach"), (message_store, "Releaser")])
def test_one_that_could_not_open_beside_it_is_not_taken_for_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, step: str
) -> None:
    store = open_store(tmp_path, SMALL, housekeeping=False)
    refuse_to(monkeypatch, module, step)
    behind_the_gate(monkeypatch, store.close)
    with pytest.raises(LimitReached, match="planted"):
        open_store(tmp_path, SMALL, housekeeping=False)
    assert not (tmp_path / ABORT).exists(), "the last process has left the store clean"


def refuse_to(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
    """Let a step of the opening find no descriptor or thread any more."""

    def refuse(*_: object, **__: object) -> None:
        raise LimitReached("planted")

    monkeypatch.setattr(module, name, refuse)
