"""Sizes: the fixed settings of a store as it lies there: recorded, or as the sizes of its files show them."""

from __future__ import annotations

from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.config import StoreConfig
from rmqclient.store.errors import StoreUnusable
from rmqclient.store.log import commit_log, index_file
from rmqclient.store.log.shape import check_sizes, usual_sizes
from rmqclient.store.settings import store_settings
from rmqclient.store.settings.store_settings import StoreSettings

_ENTRY = layout.CONSUME_QUEUE_ENTRY


def settings_of(root: Path) -> StoreSettings:
    """Return the fixed settings of a store: from ``store.json``, or from the file sizes of a store that a broker made.

    Raises StoreUnusable if there is none, ConfigMismatch for one of another version.
    """
    if not root.is_dir():
        raise StoreUnusable(f"{root} is not a directory: give the directory of a store")
    recorded = store_settings.read_store_settings(root)
    if recorded is None and not (root / commit_log.DIRECTORY).is_dir():
        raise StoreUnusable(f"{root} holds no store: neither {store_settings.STORE_SETTINGS_FILE} nor a commit log")
    settings = recorded or _sizes_of_files(root)
    check_sizes(root, settings.commit_log_file_bytes, settings.consume_queue_file_entries)
    return settings


def _sizes_of_files(root: Path) -> StoreSettings:
    """Return the fixed settings of a store without ``store.json``, from the sizes of its files."""
    usual = StoreConfig()
    log_bytes, queue_bytes = usual_sizes(root)
    entries = queue_bytes // _ENTRY.size
    indexes = index_file.paths(root)
    index = index_file.sizes_in(indexes[0]) if indexes else None
    return StoreSettings(
        log_bytes or usual.commit_log_file_bytes,
        entries or usual.consume_queue_file_entries,
        *(index or (usual.index_slots, usual.index_entries)),
    )
