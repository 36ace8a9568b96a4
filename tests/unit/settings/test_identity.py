"""Which store a directory holds: the same for its life and in its copies, another one for a store made anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqclient.store import StoreConfig, open_store
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.settings.identity import IDENTITY_FILE, store_identity
from rmqclient.store.settings.lineage import Lineage, begin_lineage, write_lineage

SMALL = StoreConfig.small()


def made(root: Path) -> str:
    """Return the identity of a store that is made here, or opened again."""
    open_store(root, SMALL).close()
    found = store_identity(root)
    assert found is not None
    return found


def test_a_store_keeps_its_identity_and_so_does_a_copy(tmp_path: Path) -> None:
    first = made(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    assert made(tmp_path / "store") == made(tmp_path / "copy") == first
    assert len(first) == 32


def test_a_store_that_is_made_at_the_path_of_another_one_has_another_identity(tmp_path: Path) -> None:
    first = made(tmp_path / "store")
    shutil.rmtree(tmp_path / "store")
    assert made(tmp_path / "store") != first


def test_a_directory_without_a_store_has_none(tmp_path: Path) -> None:
    assert store_identity(tmp_path) is None
    assert store_identity(tmp_path / "missing") is None


def test_a_lineage_begins_with_the_identity_and_a_replica_takes_over_that_of_its_primary(tmp_path: Path) -> None:
    primary, copy = tmp_path / "primary", tmp_path / "copy"
    first = made(primary)
    made(copy)

    lineage = begin_lineage(primary)
    assert lineage.store_id == store_identity(primary) == first

    write_lineage(copy, lineage)
    assert store_identity(copy) == made(copy) == first


def test_a_store_from_before_identities_gets_that_of_its_lineage(tmp_path: Path) -> None:
    made(tmp_path)
    write_lineage(tmp_path, Lineage("0" * 32, ()))
    (tmp_path / IDENTITY_FILE).unlink()
    assert made(tmp_path) == "0" * 32


@pytest.mark.parametrize("text", ["{}", '{"store_id": 7}', '{"store_id": ""}', "{"])
def test_a_damaged_identity_is_no_identity(tmp_path: Path, text: str) -> None:
    made(tmp_path)
    (tmp_path / IDENTITY_FILE).write_text(text)
    with pytest.raises(StoreCorrupt):
        store_identity(tmp_path)
