"""Stored names: what stands in the store for a name that a client may have and that has no room there.

A broker takes a group of up to 255 characters, ``|`` among them, and a client id of any length. The store has 127
bytes for each, and ``|`` tells there which member of a broadcast group keeps an offset. Such a name is stored by its
beginning and a digest of all of it. Clients and tools go on using the whole one.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from rmqclient.names import MEMBER_SEPARATOR

MOST_GROUP_CHARACTERS: Final = 255
"""Of a group. [Validators.CHARACTER_MAX_LENGTH]"""
MOST_CLIENT_BYTES: Final = 1_024
"""Of a client id; a broker has no limit."""

_GROUP: Final = re.compile(rf"[%|a-zA-Z0-9_-]{{1,{MOST_GROUP_CHARACTERS}}}")
_SHORTENED: Final = re.compile("%[0-9a-f]{32}$")
_ROOM: Final = 127
_KEPT: Final = 80


def is_group(text: str) -> bool:
    """Tell whether a client may have a group of this name: 1 to 255 of ``%|a-zA-Z0-9_-``."""
    return _GROUP.fullmatch(text) is not None


def stored_group(group: str) -> str:
    """Return the name under which the store has a group of a client."""
    if len(group) <= _ROOM and MEMBER_SEPARATOR not in group:
        return group
    return f"{group[:_KEPT].replace(MEMBER_SEPARATOR, '_')}%{_digest(group)}"


def is_shortened(stored: str) -> bool:
    """Tell whether a name in the store looks like that of a group with another one."""
    return _SHORTENED.search(stored) is not None


def stored_client(client_id: str) -> str:
    """Return the name under which the store has a client. Its beginning is kept, by which members are sorted."""
    content = client_id.encode()
    if len(content) <= _ROOM:
        return client_id
    return f"{content[:_KEPT].decode(errors='ignore')}#{_digest(client_id)}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
