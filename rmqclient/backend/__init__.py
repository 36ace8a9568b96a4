"""Backends: where messages are kept, as producers and consumers see it.

``protocols``, ``group_protocols`` and ``bells`` say what they may ask. :mod:`rmqclient.local` answers for a store of
this host; nothing else of the client knows how the store shares its memory. :mod:`rmqclient.opening` finds the backend
for what a user names.
"""

from __future__ import annotations

from rmqclient.backend.protocols import Backend

__all__ = ["Backend"]
