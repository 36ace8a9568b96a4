"""Client id: the name of a consumer among the members of its group."""

from __future__ import annotations

import hashlib
import os
import secrets

from rmqclient.store.errors import InvalidName

_MOST_BYTES = 127


def default_client_id() -> str:
    """Return host, pid and a random part: two containers may have the same host name and the same pid."""
    return f"{os.uname().nodename}@{os.getpid()}#{secrets.token_hex(4)}"


def check_client_id(client_id: str) -> str:
    """Return ``client_id``. Raises InvalidName unless it has 1 to 127 bytes and is printable."""
    size = len(client_id.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= _MOST_BYTES or not client_id.isprintable():
        raise InvalidName(f"client id {client_id[:200]!r} has {size} bytes: give 1 to {_MOST_BYTES}, all printable")
    return client_id


def digest_of(client_id: str) -> int:
    """Return 64 bits that stand for a client id where there is no room for it."""
    return int.from_bytes(hashlib.blake2b(client_id.encode(), digest_size=8).digest(), "little")
