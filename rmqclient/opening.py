"""Opening: the backend for what a user names.

====================  ===================================================================
given                 backend
====================  ===================================================================
a directory           the store in it, opened for this user and closed with it
an open store         that store, which stays open
a backend             that backend, which stays open
``scheme://...``      none yet: ValueError names the scheme
====================  ===================================================================
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias

from rmqclient.backend.protocols import Backend
from rmqclient.local.backend import LocalBackend
from rmqclient.store import MessageStore, StoreConfig, open_store

Place: TypeAlias = Path | str | MessageStore | Backend
"""What names a backend."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_backend(
    place: Place, config: StoreConfig | None = None, *, create: bool = True, housekeeping: bool = True
) -> Backend:
    """Return the backend that a user names, for a user that closes it when it is done.

    A directory is opened as a store, and made when it is missing and ``create`` is true. ``config=None`` takes the
    settings that the directory was made with. ``housekeeping=False`` leaves the housekeeper's role to other processes.
    All three are for a directory: what is open already stays as it is.

    Raises ValueError for a URL, and what :func:`rmqclient.store.open_store` raises.
    """
    if isinstance(place, MessageStore):
        return LocalBackend(place, owns_store=False)
    if isinstance(place, Path | str):
        _check_scheme(place)
        return LocalBackend(open_store(place, config, create=create, housekeeping=housekeeping), owns_store=True)
    return place.shared()


def _check_scheme(place: Path | str) -> None:
    """Refuse what names a server: a directory is not named like that."""
    found = _SCHEME.match(place) if isinstance(place, str) else None
    if found is not None:
        raise ValueError(
            f"{place!r}: no backend is known for the scheme {found[1]!r}; give the directory of a store on this host, "
            "such as './store'"
        )
