"""Clients: the connections to clusters that this process keeps.

A worker process of Spark runs one task after the other, and the process of a stream asks for offsets again and again.
They end with their process, or with :func:`close_kept_clients`.
"""

from __future__ import annotations

import os

from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient

_kept: dict[tuple[int, str], ClusterClient] = {}


def kept_client(url: str) -> ClusterClient:
    """Return the client of this process for a URL. Raises InvalidURL."""
    known = os.getpid(), url
    if known not in _kept:
        _kept[known] = ClusterClient(ClusterURL.parse(url))
    return _kept[known]


def close_kept_clients() -> None:
    """End the connections of this process and their thread, for a process that goes on without Spark."""
    while _kept:
        (process_id, _), client = _kept.popitem()
        if process_id == os.getpid():
            client.close()
