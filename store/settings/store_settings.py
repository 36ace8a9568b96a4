"""Store settings: ``<root>/store.json``, the settings that are fixed when the directory is made.

They are the settings of :class:`rmqclient.store.config.StoreConfig` that are marked **fixed**. RocketMQ has them in its
``broker.conf``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from rmqclient.store.errors import ConfigMismatch
from rmqclient.store.settings import document

STORE_SETTINGS_FILE = Path("store.json")
STORE_FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings that are fixed for the life of a store directory."""

    commit_log_file_bytes: int
    """Size of each commit log file. [mappedFileSizeCommitLog]"""

    consume_queue_file_entries: int
    """Entries in each consume queue file. [mappedFileSizeConsumeQueue / 20]"""

    index_slots: int = 100_000
    """Hash slots in each index file. [maxHashSlotNum]"""

    index_entries: int = 400_000
    """Room for entries in each index file. [maxIndexNum]"""


def read_store_settings(root: Path) -> StoreSettings | None:
    """Return the fixed settings of the directory, ``None`` if it has no ``store.json``.

    A damaged file is refused: with guessed file sizes, RocketMQ and this library would delete good files.

    Raises:
        ConfigMismatch: not readable, of another format version, or with other fields than this version writes.
    """
    path = root / STORE_SETTINGS_FILE
    try:
        found = orjson.loads(document.content(path, missing=b"null"))
    except orjson.JSONDecodeError as error:
        raise ConfigMismatch(f"{path}: not readable: {error}") from error
    return None if found is None else _store_settings(path, found)


def write_store_settings(root: Path, settings: StoreSettings) -> None:
    """Write ``store.json``.

    Raises:
        StoreFull: no room; the present file is untouched.
    """
    fields = {**asdict(settings), "format_version": STORE_FORMAT_VERSION}
    document.write(root / STORE_SETTINGS_FILE, document.render(fields))


_ADDED_LATER = {"index_slots", "index_entries"}
"""A store whose file lacks them has their defaults."""


def _store_settings(path: Path, found: object) -> StoreSettings:
    if not isinstance(found, dict) or found.get("format_version") != STORE_FORMAT_VERSION:
        raise ConfigMismatch(f"{path}: not of format version {STORE_FORMAT_VERSION}")
    fields = {name: value for name, value in found.items() if name != "format_version"}
    named = set(StoreSettings.__dataclass_fields__)
    if not named - _ADDED_LATER <= set(fields) <= named:
        raise ConfigMismatch(f"{path}: has the fields {', '.join(sorted(fields))}")
    for name, value in fields.items():
        if not document.is_count(value) or value == 0:
            raise ConfigMismatch(f"{path}: {name} is {value!r}")
    return StoreSettings(**fields)
