"""Which saved files count as changes."""

from __future__ import annotations

from pathlib import Path

from rmqclient.workers.development.changes import Changes


def test_a_change_is_told_once_when_the_file_stays_as_it_is(tmp_path: Path) -> None:
    source = tmp_path / "shop.py"
    source.write_text("one = 1\n")
    changes = Changes([tmp_path])
    assert changes.settled() == []

    source.write_text("two = 22\n")
    assert changes.settled() == []  # it may still be written
    source.write_text("three = 333\n")
    assert changes.settled() == []
    assert changes.settled() == [str(source)]
    assert changes.settled() == []


def test_new_removed_and_replaced_files_are_changes(tmp_path: Path) -> None:
    for name in ("removed.py", "replaced.py"):
        (tmp_path / name).write_text("")
    changes = Changes([tmp_path])
    (tmp_path / "new.py").write_text("")
    (tmp_path / "removed.py").unlink()
    (tmp_path / "draft").write_text("")
    (tmp_path / "draft").replace(tmp_path / "replaced.py")
    assert changes.settled() == []
    assert changes.settled() == [str(tmp_path / name) for name in ("new.py", "removed.py", "replaced.py")]


def test_files_that_are_no_source_of_the_application_do_not_count(tmp_path: Path) -> None:
    inner = [tmp_path / name for name in (".git", "environment", "store", "__pycache__", "node_modules")]
    for folder in inner:
        folder.mkdir()
    (tmp_path / "environment" / "pyvenv.cfg").touch()
    (tmp_path / "store" / "commitlog").mkdir()
    changes = Changes([tmp_path])
    for folder in inner:
        (folder / "other.py").touch()
    (tmp_path / "notes.txt").touch()
    assert [changes.settled() for _ in range(3)] == [[], [], []]


def test_a_file_that_is_named_counts_whatever_its_name_is(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("")
    changes = Changes([settings])
    settings.write_text("a = 1")
    assert [changes.settled() for _ in range(2)] == [[], [str(settings)]]
