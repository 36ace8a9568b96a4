"""Observed: the groups of a store as :mod:`rmqclient.store.observe` reads them."""

from __future__ import annotations

from pathlib import Path

from rmqclient.store import clock
from rmqclient.store.errors import StoreUnusable
from rmqclient.store.observe.reading import Reading
from rmqclient.store.observe.shared_file import Unreadable
from rmqclient.store.observe.summary import Group, groups_of


def observed_groups(root: Path) -> list[Group]:
    """Return every group of the store in a directory. Its words are read without a lock. Raises StoreUnusable."""
    try:
        with Reading(str(root)) as reading:
            return groups_of(reading.observe(wall_ms=clock.wall_ms(), ages=0))
    except Unreadable as error:
        raise StoreUnusable(str(error)) from error
