"""Ids: what the id of a message says by itself, without a store."""

from __future__ import annotations

from typing import Any

from rmqclient.store.wire import parse_offset_id

_UNIQUE_BYTES = 16


def readings(message_id: str) -> list[dict[str, Any]]:
    """Return what an id says: as the unique id of a sender if it has 32 digits, and as the offset id of a broker.

    Both kinds may have 32 digits, and nothing tells them apart. Raises ValueError for what is no id.
    """
    offset_id, data = parse_offset_id(message_id), bytes.fromhex(message_id)
    unique = {
        "kind": "unique id",
        "address": ".".join(map(str, data[:4])),
        "pid": int.from_bytes(data[4:6], "big"),
        "ms_of_month": int.from_bytes(data[10:14], "big"),
        "counter": int.from_bytes(data[14:16], "big"),
        "commit_log_offset": None,
    }
    offset = {
        "kind": "offset id",
        "address": offset_id.address,
        "pid": None,
        "ms_of_month": None,
        "counter": None,
        "commit_log_offset": offset_id.commit_log_offset,
    }
    return [unique, offset] if len(data) == _UNIQUE_BYTES else [offset]
