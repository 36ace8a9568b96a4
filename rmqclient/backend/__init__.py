"""Backends: the interface of producers and consumers to a store or a cluster.

A :class:`Backend` is a record of parts, which ``protocols``, ``group_protocols`` and ``bells`` define.
:mod:`rmqclient.local` makes it for a store of this host; no other part of the client knows the store's shared memory.
:mod:`rmqclient.opening` chooses the backend for a user's argument, and decides whether its ``close`` closes it.
"""

from __future__ import annotations

from rmqclient.backend.backend import Backend

__all__ = ["Backend"]
