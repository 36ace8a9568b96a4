"""Identity: which store a directory holds, for those that keep offsets of it elsewhere, such as a checkpoint of Spark.

An offset says nothing without it: a store that was removed and made anew has other messages at the same offsets. Keep
the identity beside the offsets, and compare it before they are used::

    found = store_identity(root)
    if kept is not None and found is not None and kept != found:
        ...  # another store: the offsets that were kept are not of this one

``<root>/identity.json`` is made with the store, before its first message. RocketMQ does not look at it. It names the
history of the log rather than the directory:

- A copy has the identity of its original, and so has a backup that was put back. The messages at their common offsets
  are the same; such a store may end below an offset that was kept.
- A replica takes over the identity of its primary with its lineage (:mod:`rmqclient.store.settings.lineage`). So one
  that is promoted goes on as the store that it replaces.
- A store that is made at the path of another one has an identity of its own.

Whether two *processes* have the same directory open is another question: its lock file answers it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import uuid4

from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.settings import document

IDENTITY_FILE: Final = Path("identity.json")


def store_identity(root: Path) -> str | None:
    """Return 32 hexadecimal digits, the same for the life of a store; None while nothing has given it an identity.

    That is so in a directory without a store, and in a store that only a broker or an older version has had open. The
    store need not be open. A replica that meets its primary for the first time changes to the identity of the primary.

    Raises StoreCorrupt for a damaged file, StoreUnusable, DiskFailed.
    """
    path = root / IDENTITY_FILE
    found = document.read(path)
    if found is None:
        return None
    store_id = found.get("store_id")
    if not isinstance(store_id, str) or not store_id:
        raise StoreCorrupt(path, 0, f"does not say which store this is: {found!r}. Without the file it gets a new one")
    return store_id


def new_identity() -> str:
    """Return an identity that no store has."""
    return uuid4().hex


def write_identity(root: Path, store_id: str) -> None:
    """Make an identity that of a store, durably; the same one is not written again. Raises StoreCorrupt, StoreFull."""
    if store_identity(root) != store_id:
        document.replace_file(root / IDENTITY_FILE, document.render({"store_id": store_id}))
