"""Requesters: the connection to which a reply is sent.

A request has the client id of its sender, and heartbeats map client ids to connections. A client may ask before its
first heartbeat: Go's client sends one only after a while, and a reply can come after 30 ms. So until a heartbeat names
a connection, the one that sent the request is used.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from rmqclient.broker.request import Peer

PeerOf = Callable[[str], Peer | None]
"""Returns a producer's connection by its client id; for the thread of the event loop."""

_MOST_CLIENTS: Final = 10_000
"""Clients remembered, at most; the least recent one is dropped."""


class Requesters:
    """Finds connections by client ids. ``beaten`` knows those from heartbeats."""

    def __init__(self, beaten: PeerOf) -> None:
        self._beaten = beaten
        self._lock = threading.Lock()
        self._asked: OrderedDict[str, weakref.ref[Peer]] = OrderedDict()

    def note(self, client_id: str, peer: Peer) -> None:
        """Note the connection of a client's request. For any thread."""
        with self._lock:
            self._asked[client_id] = weakref.ref(peer)
            self._asked.move_to_end(client_id)
            if len(self._asked) > _MOST_CLIENTS:
                self._asked.popitem(last=False)

    def peer(self, client_id: str) -> Peer | None:
        """Return the open connection of a client, or None. For the thread of the event loop."""
        found = self._beaten(client_id)
        if found is not None:
            return found
        with self._lock:
            noted = self._asked.get(client_id)
        asked = None if noted is None else noted()
        return asked if asked is not None and asked.is_open else None
