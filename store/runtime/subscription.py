"""Subscription: the text by which the members of a group tell that they want the same messages, and share them alike.

A member in another language, which a server holds a seat for, says nothing of how it orders messages and shares queues.
Its text ends with ``; remote``, and is compared without what other texts say about these two.
"""

from __future__ import annotations

import hashlib
import re

REMOTE = "; remote"
"""Ends the text of a member that says only which messages it wants."""

_BYTES = 512
_SHARING = re.compile(r"(; ordered by \w+)?(; broadcast)?; allocation .*", re.DOTALL)


def agree(one: str, other: str) -> bool:
    """Tell whether two members may be in one group."""
    if one == other:
        return True
    remote, local = (one, other) if one.endswith(REMOTE) else (other, one)
    messages = remote.removesuffix(REMOTE)
    return messages != remote and local.startswith(messages) and bool(_SHARING.fullmatch(local, len(messages)))


def fitted(subscription: str) -> str:
    """Return a text that fits in a slot: a longer one is cut and ends with its digest, so that it still differs."""
    content = subscription.encode()
    if len(content) <= _BYTES:
        return subscription
    ending = f" ... sha256 {hashlib.sha256(content).hexdigest()}"
    return content[: _BYTES - len(ending)].decode(errors="ignore") + ending
