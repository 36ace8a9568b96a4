"""The settings that are fixed when a directory is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient.store.errors import ConfigMismatch
from rmqclient.store.settings import store_settings
from rmqclient.store.settings.store_settings import StoreSettings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path


def test_fixed_settings_are_read_back_and_missing_ones_are_none(root: Path) -> None:
    assert store_settings.read_store_settings(root) is None
    settings = StoreSettings(commit_log_file_bytes=4096, consume_queue_file_entries=16)
    store_settings.write_store_settings(root, settings)
    assert store_settings.read_store_settings(root) == settings
    assert (root / "store.json").read_bytes() == (
        b'{\n\t"commit_log_file_bytes":4096,\n\t"consume_queue_file_entries":16,\n\t"format_version":1,\n'
        b'\t"index_entries":400000,\n\t"index_slots":100000\n}'
    )
    (root / "store.json").write_bytes(
        b'{"commit_log_file_bytes":4096,"consume_queue_file_entries":16,"format_version":1}'
    )
    assert store_settings.read_store_settings(root) == settings, "a store from before the index"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"format_version":1}',
        b'{"commit_log_file_bytes":4096,"consume_queue_file_entries":16}',
        b'{"commit_log_file_bytes":4096,"consume_queue_file_entries":16,"format_version":2}',
        b'{"commit_log_file_bytes":4096,"consume_queue_file_entries":16,"format_version":1,"more":1}',
        b'{"commit_log_file_bytes":"4096","consume_queue_file_entries":16,"format_version":1}',
        b'{"commit_log_file_bytes":0,"consume_queue_file_entries":16,"format_version":1}',
        b'{"commit_log_file_bytes":true,"consume_queue_file_entries":16,"format_version":1}',
    ],
)
def test_fixed_settings_are_never_guessed(root: Path, text: bytes) -> None:
    (root / "store.json").write_bytes(text)
    (root / "store.json.bak").write_bytes(
        b'{"commit_log_file_bytes":4096,"consume_queue_file_entries":16,"format_version":1}'
    )
    with pytest.raises(ConfigMismatch, match=r"store\.json"):
        store_settings.read_store_settings(root)
