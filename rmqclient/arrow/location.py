"""Location: where the process of a reader finds a store."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rmqclient.archive.view import open_view
from rmqclient.store.inspect.view import View
from rmqclient.store.settings.identity import store_identity


class Location(NamedTuple):
    """The directory or archive of a store, and an archive with the messages that the directory no longer has."""

    path: str
    archive: str | None = None
    archive_options: tuple[tuple[str, str], ...] = ()

    def open(self, *, may_be_elsewhere: bool = False) -> View:
        """Open a new view of the store.

        With ``may_be_elsewhere``, for an executor that may run on another host, a missing directory is no error: the
        archive alone is read. Raises as :func:`rmqclient.archive.view.open_view`.
        """
        options = dict(self.archive_options)
        return open_view(self.path, self.archive, options, may_be_elsewhere=may_be_elsewhere)

    def directory(self) -> Path | None:
        """Return the directory of the store; None for an archive alone."""
        return None if "://" in self.path else Path(self.path)

    def identity(self) -> str | None:
        """Return the identity of the store in the directory; None if it has none, or if this is no directory."""
        return None if "://" in self.path else store_identity(Path(self.path))


_MOST_KEPT = 8
_kept: dict[Location, tuple[object, View]] = {}


def opened(location: Location) -> View:
    """Return a view that this process keeps, because a worker of Spark reads the same store again and again.

    The view is opened anew when an entry of the directory itself was made or removed. This happens seldom, and always
    when another store takes the place of the old one: the old files would stay readable, because they are mapped.
    """
    version = _version(location.path)
    before, view = _kept.pop(location, (None, None))
    if view is None or before != version:
        view = location.open(may_be_elsewhere=True)
    if len(_kept) >= _MOST_KEPT:
        _kept.clear()
    _kept[location] = version, view
    return view


def _version(path: str) -> tuple[int, ...] | None:
    try:
        status = Path(path).stat()
    except OSError:  # not here, or a URL
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns
