"""Backends: the interface of producers and consumers to a store or a cluster.

``protocols``, ``group_protocols`` and ``bells`` define it. :mod:`rmqclient.local` implements it for a store of this
host; no other part of the client knows the store's shared memory. :mod:`rmqclient.opening` chooses the backend for a
user's argument.
"""

from __future__ import annotations

from rmqclient.backend.backend import Backend

__all__ = ["Backend"]
