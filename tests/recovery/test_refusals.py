"""What is refused, with a typed error and before a byte is changed: no plain files, wrong settings, read-only."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from rmqclient.store import open_store
from rmqclient.store.errors import ConfigMismatch, StoreUnusable
from rmqclient.store.inspect import verify
from rmqclient.store.layout import RUNTIME_HEADER
from tests.recovery.scenes import FILE_BYTES, QUEUES, Expected, Written, check, copy, log_path, queue_path, snapshot
from tests.support.written import run, run_here


def become_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_bytes(b"kept")


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def become_a_link(path: Path) -> None:
    path.rename(path.parents[1] / "elsewhere")
    path.symlink_to(path.parents[1] / "elsewhere")


def become_a_link_to_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/at/all")


KINDS = [become_a_directory, become_a_pipe, become_a_link, become_a_link_to_nowhere]


@pytest.mark.parametrize("become", KINDS, ids=lambda become: become.__name__)
@pytest.mark.parametrize("number", [0, 2, -1])
def test_what_is_no_plain_file_of_the_log_is_refused_by_name(
    original: Path, written: Written, target: Path, way: str, become: Callable[[Path], None], number: int
) -> None:
    root = copy(original, way, target)
    path = sorted((root / "commitlog").iterdir())[number]
    become(path)
    check_refused(root, path)

    # And when it is moved away, the rest is served
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    open_store(root, housekeeping=False).close()


@pytest.mark.parametrize("become", KINDS, ids=lambda become: become.__name__)
@pytest.mark.parametrize("number", [0, 1, 3])
def test_what_is_no_plain_file_of_a_queue_is_refused_by_name(
    original: Path, written: Written, target: Path, way: str, become: Callable[[Path], None], number: int
) -> None:
    root = copy(original, way, target)
    path = queue_path(root, QUEUES[0], number)
    become(path)
    check_refused(root, path)
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    check(root, Expected(written=written))


def forget_openings(found: dict[str, tuple[object, ...]], path: str) -> None:
    """Leave the counter of openings out: one that is refused wastes a number, too."""
    if path in found:
        *status, content = found[path]
        assert isinstance(content, bytes)
        at = RUNTIME_HEADER.at["openings"]
        found[path] = (*status, content[:at] + content[at + 8 :])


def check_refused(root: Path, path: Path) -> None:
    before = snapshot(root)
    for _ in range(2):
        with pytest.raises(StoreUnusable, match=path.name):
            open_store(root, housekeeping=False)
    after = snapshot(root)
    for found in (before, after):
        forget_openings(found, str(root / "shared"))
    for name in ("store.json", "lock"):  # a store of a broker has none yet
        after.pop(str(root / name), None)
        before.pop(str(root / name), None)
    before.pop(str(root))
    after.pop(str(root))
    assert after == before
    for command in (["verify"], ["repair"], ["repair", "--dry-run"]):
        done = run_here(command[0], root, *command[1:])
        assert done.exit_code == 3
        assert path.name in done.output


@pytest.mark.parametrize("name", ["commit_log_file_bytes", "consume_queue_file_entries"])
@pytest.mark.parametrize("factor", [2, 0.5])
def test_settings_that_are_not_those_of_the_files_are_refused(
    original: Path, written: Written, target: Path, name: str, factor: float
) -> None:
    # Given a store.json of another store
    root = copy(original, "copied", target)
    intact = (root / "store.json").read_bytes()
    settings = orjson.loads(intact)
    settings[name] = int(settings[name] * factor) + (20_480 if name == "commit_log_file_bytes" else 0)
    (root / "store.json").write_bytes(orjson.dumps(settings))

    # Then no file is cut to what it says
    before = snapshot(root)
    with pytest.raises(ConfigMismatch, match=r"put the right store.json back"):
        open_store(root, housekeeping=False)
    with pytest.raises(ConfigMismatch):
        verify.verify(root)
    assert run_here("repair", root).exit_code == 3
    assert snapshot(root) == before
    (root / "store.json").write_bytes(intact)
    check(root, Expected(written=written))


@pytest.fixture
def read_only(original: Path, target: Path) -> Iterator[Path]:
    """Mount a copy read-only over itself; skip where this process may not."""
    root = copy(original, "copied", target)
    libc = ctypes.CDLL(None, use_errno=True)
    bind, remount, read_only_flag = 4_096, 32, 1
    at = os.fsencode(root)
    if os.geteuid() or libc.mount(at, at, None, bind, None):
        pytest.skip("needs the right to mount")
    try:
        assert not libc.mount(at, at, None, bind | remount | read_only_flag, None), os.strerror(ctypes.get_errno())
        yield root
    finally:
        assert not libc.umount(at)


def test_a_store_on_a_read_only_file_system_is_looked_at_and_not_opened(read_only: Path, written: Written) -> None:
    with pytest.raises(StoreUnusable, match="mounted read-only"):
        open_store(read_only, housekeeping=False)
    assert run("verify", read_only).returncode == 0
    dumped = run("dump", read_only)
    assert dumped.returncode == 0
    assert len(dumped.stdout.splitlines()) == len(written)
    planned = run("repair", read_only, "--dry-run")
    assert planned.returncode == 0
    assert planned.stdout.startswith(f"commit log from 0 to {written[-1][0] + written[-1][1].size}")
    refused = run("repair", read_only)
    assert refused.returncode == 3
    assert "mounted read-only" in refused.stderr
    assert len(list((read_only / "commitlog").iterdir())) == len({offset // FILE_BYTES for offset, _ in written})
    assert log_path(read_only, 0).exists()
