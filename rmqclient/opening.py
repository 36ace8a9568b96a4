"""Opening: the backend for what a user names.

====================  ===================================================================
given                 backend
====================  ===================================================================
a directory           the store in it, opened for this user and closed with it
an open store         that store, which stays open
a backend             that backend, which stays open
``rocketmq://...``    a client of that cluster, closed with this user
====================  ===================================================================

Nothing of the network is imported before a URL is opened.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from rmqclient.backend.backend import Backend, leave_open
from rmqclient.errors import NotOnCluster
from rmqclient.local.backend import local_backend
from rmqclient.place import check_scheme, scheme_of, shown
from rmqclient.store import MessageStore, StoreConfig, open_store

__all__ = ["MessageStore", "Place", "open_backend", "open_local_store"]

Place: TypeAlias = Path | str | MessageStore | Backend
"""What names a backend."""


def open_backend(
    place: Place, config: StoreConfig | None = None, *, create: bool = True, housekeeping: bool = True
) -> Backend:
    """Return the backend that a user names, for a user that closes it when it is done.

    A directory is opened as a store, and made when it is missing and ``create`` is true. ``config=None`` takes the
    settings that the directory was made with. ``housekeeping=False`` leaves the housekeeper's role to other processes.
    All three are for a directory: what is open already stays as it is.

    Raises ValueError for a URL of another scheme or that is damaged, what :func:`rmqclient.store.open_store` raises,
    and NameServerUnreachable when no name server of a cluster answers.
    """
    if isinstance(place, MessageStore):
        return local_backend(place)
    if isinstance(place, str) and scheme_of(place):
        return _open_cluster(place)
    if isinstance(place, Path | str):
        store = open_store(place, config, create=create, housekeeping=housekeeping)
        return local_backend(store, store.close)
    return replace(place, close=leave_open)


def open_local_store(
    place: Path | str, what: str, config: StoreConfig | None = None, *, create: bool = False, housekeeping: bool = True
) -> MessageStore:
    """Open the store in a directory, for ``what`` only its files tell, a plural.

    Raises NotOnCluster for a URL, and what :func:`rmqclient.store.open_store` raises.
    """
    if isinstance(place, str) and scheme_of(place):
        raise NotOnCluster(f"{shown(place)} is a cluster, whose brokers do not tell {what}: name a directory")
    return open_store(place, config, create=create, housekeeping=housekeeping)


def _open_cluster(url: str) -> Backend:
    check_scheme(url)
    from rmqclient.cluster.backend import cluster_backend  # noqa: PLC0415 - a directory needs nothing of the network

    return cluster_backend(url)
