"""The exceptions of an archive: applications import them from :mod:`rmqclient.errors`."""

from __future__ import annotations

from rmqclient.store.errors import QueueError


class ArchiveError(QueueError):
    """An archive of a store's sealed files cannot be reached, read or written; the text names the archive's URL."""


class ArchiveBusy(ArchiveError):
    """Another process is archiving this store; the files it uploads need no second upload."""

    retryable = True


class ArchiveMismatch(ArchiveError):
    """The URL holds the archive of another store, or something that is not an archive; nothing was written."""


class ArchiveCorrupt(ArchiveError):
    """The manifest of an archive breaks its format, or a file differs from its entry in the manifest."""


class NotArchived(ArchiveError, FileNotFoundError):
    """Neither the store nor its archive has these bytes: retention removed them before they were archived."""
