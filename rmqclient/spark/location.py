"""Location: where a store is, for a process that is to read it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from rmqclient.archived_view import open_view
from rmqclient.spark.read_options import ReadOptions
from store.view import View


class Location(NamedTuple):
    """The directory or archive of a store, and the archive that has what is gone there."""

    path: str
    archive: str | None
    archive_options: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, options: ReadOptions) -> Location:
        """Return the location that the options of a read name."""
        return cls(options.path, options.archive, tuple(sorted(options.archive_options.items())))

    def open(self, *, may_be_elsewhere: bool = False) -> View:
        """Look at the store anew.

        Where an executor ``may_be_elsewhere`` and has no such directory, the archive alone is read. Raises what
        :func:`rmqclient.archived_view.open_view` raises.
        """
        options = dict(self.archive_options)
        return open_view(self.path, self.archive, options, may_be_elsewhere=may_be_elsewhere)


@lru_cache(maxsize=8)
def opened(location: Location) -> View:
    """Return a view that this process keeps: a worker of Spark reads the same store again and again."""
    return location.open(may_be_elsewhere=True)
