"""Backends: where messages are kept, as producers and consumers see it.

``protocols``, ``group_protocols`` and ``bells`` say what they may ask. The files ``local*`` answer for a store on this
host; nothing else of the client knows how the store shares its memory. ``opening`` finds the backend for what a
user names.
"""

from __future__ import annotations

from rmqclient.backend.opening import Place, open_backend
from rmqclient.backend.protocols import Backend

__all__ = ["Backend", "Place", "open_backend"]
