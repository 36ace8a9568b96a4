"""Clients: the connections to clusters that this process keeps.

A worker process of Spark runs one task after another, and the process of a stream asks for offsets repeatedly. The
connections end with their process, or with :func:`close_kept_clients`.
"""

from __future__ import annotations

import os

from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.net.direct import DirectConnection

_kept: dict[tuple[int, str], ClusterClient] = {}
_idle: dict[tuple[int, ClusterURL, str], DirectConnection] = {}


def kept_client(url: str) -> ClusterClient:
    """Return the client of this process for a URL. Raises InvalidURL."""
    known = os.getpid(), url
    if known not in _kept:
        _kept[known] = ClusterClient(ClusterURL.parse(url))
    return _kept[known]


def borrow(url: ClusterURL, address: str) -> DirectConnection:
    """Return a connection to a broker for exclusive use. Raises as :class:`DirectConnection`."""
    return _idle.pop((os.getpid(), url, address), None) or DirectConnection(url, address)


def give_back(url: ClusterURL, connection: DirectConnection) -> None:
    """Keep a connection, without requests under way, for the next :func:`borrow`; close an older idle one."""
    known = os.getpid(), url, connection.address
    if (older := _idle.pop(known, None)) is not None:
        older.close()
    _idle[known] = connection


def close_kept_clients() -> None:
    """End the connections of this process and their thread, for a process that continues without Spark."""
    own = os.getpid()
    while _kept:
        (process_id, _), client = _kept.popitem()
        if process_id == own:
            client.close()
    while _idle:
        (process_id, *_), connection = _idle.popitem()
        if process_id == own:
            connection.close()
