"""Stored names: short forms of clients' names that do not fit into the store.

A broker accepts a group of up to 255 characters, ``|`` among them, and a client id of any length. The store has 127
bytes for each, and uses ``|`` to separate a broadcast group from its member. So a name that does not fit is stored as
its beginning and a digest. Clients and tools see the whole name.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from rmqclient.names import MEMBER_SEPARATOR

MOST_GROUP_CHARACTERS: Final = 255
"""Characters of a group name, at most. [Validators.CHARACTER_MAX_LENGTH]"""
MOST_CLIENT_BYTES: Final = 1_024
"""Bytes of a client id, at most; a broker has no limit."""

_GROUP: Final = re.compile(rf"[%|a-zA-Z0-9_-]{{1,{MOST_GROUP_CHARACTERS}}}")
_SHORTENED: Final = re.compile("%[0-9a-f]{32}$")
_ROOM: Final = 127
_KEPT: Final = 80


def is_group(text: str) -> bool:
    """Return whether this is a valid group name: 1 to 255 of ``%|a-zA-Z0-9_-``."""
    return _GROUP.fullmatch(text) is not None


def stored_group(group: str) -> str:
    """Return the name of a group in the store."""
    if len(group) <= _ROOM and MEMBER_SEPARATOR not in group:
        return group
    return f"{group[:_KEPT].replace(MEMBER_SEPARATOR, '_')}%{_digest(group)}"


def is_shortened(stored: str) -> bool:
    """Return whether a name in the store looks like the short form of another one."""
    return _SHORTENED.search(stored) is not None


def stored_client(client_id: str) -> str:
    """Return the name of a client in the store. It keeps the beginning, by which members are sorted."""
    content = client_id.encode()
    if len(content) <= _ROOM:
        return client_id
    return f"{content[:_KEPT].decode(errors='ignore')}#{_digest(client_id)}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
