"""Everything the queue can raise on purpose, store and client alike.

::

    QueueError
    ├── StoreError
    │   ├── StoreClosed           the handle was closed, or used in a forked child
    │   ├── StoreInUse            a RocketMQ broker has this directory open
    │   ├── StoreBusy             a lock was held longer than the time allowed for it
    │   │   └── PageCacheBusy     one append has kept the append lock for a second; nothing was written
    │   ├── StoreFull             no room for another file, or the disk is too full; nothing was written
    │   ├── StorePoisoned         a flush failed in some process; no append is believed any more
    │   ├── StoreUnusable         the directory cannot be opened: permission, file system, kind
    │   ├── ConfigMismatch        the directory was made with other fixed settings or by another version
    │   ├── MessageExpired        retention has removed the message
    │   └── StoreCorrupt          bytes on disk break the format; carries path and position
    ├── MessageRejected           this message can never be stored; nothing was written
    │   ├── BodyTooLarge
    │   ├── PropertiesTooLarge
    │   └── BatchTooLarge
    ├── InvalidName               a topic or group outside the alphabet or too long
    ├── UnknownTopic              asked about a topic that was never made
    ├── TableFull                 a fixed table of the runtime file has no free slot
    └── HandlerError              a handler cannot be registered or loaded

Two questions decide what a caller does, so they are attributes and not prose:
``retryable`` (the same call may succeed later) and ``stored`` (whether the message
can be in the log although the call raised).

All of them survive pickling, because workers send them to their supervisor.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import ClassVar, Final

NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What the kernel says when there is no room; it becomes :class:`StoreFull`."""


class QueueError(Exception):
    """Base class of everything raised on purpose."""

    retryable: ClassVar[bool] = False
    stored: ClassVar[bool] = False


class StoreError(QueueError):
    """Something about the store directory, not about one message."""


class StoreClosed(StoreError):
    """The handle was closed, or belongs to the process that this one was forked from."""


class StoreInUse(StoreError):
    """Somebody else's broker holds the directory; stop it first."""

    retryable = True


class StoreBusy(StoreError):
    """A lock between processes was held longer than the time allowed for it."""

    retryable = True


class PageCacheBusy(StoreBusy):
    """One append has kept the append lock for longer than ``page_cache_busy_timeout_ms``. [OS_PAGECACHE_BUSY]

    The disk is slower than the senders, or the holder is stopped. Nothing was written.
    """


class StoreFull(StoreError):
    """The file system, a quota or a limit leaves no room: for the next file, or below ``disk_full_percent``."""

    retryable = True


class StorePoisoned(StoreError):
    """A flush failed. The kernel may have dropped dirty pages, so no later flush can be believed.

    Messages appended before may be lost at a power cut; restart every process that uses the store
    after the disk was looked at.
    """

    stored = True


class StoreUnusable(StoreError):
    """The directory cannot be opened: not permitted, not a directory, or on a file system without shared mappings."""


class ConfigMismatch(StoreError):
    """The directory was made with other fixed settings, or by another version of this library."""


class MessageExpired(StoreError, LookupError):
    """The message was removed by retention: it stood below the oldest file of the commit log."""


class StoreCorrupt(StoreError):
    """Bytes on disk do not follow the format in :mod:`store.layout`."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path}, byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason

    def __reduce__(self) -> tuple[type[StoreCorrupt], tuple[Path, int, str]]:
        # The default would rebuild this from the formatted text alone, and fail in the supervisor.
        return type(self), (self.path, self.position, self.reason)


class MessageRejected(QueueError):
    """This message can never be stored; nothing was written."""


class BodyTooLarge(MessageRejected):
    """The body is longer than ``max_body_bytes``."""


class PropertiesTooLarge(MessageRejected):
    """Tags, keys and properties together take more than 32,767 bytes on disk."""


class BatchTooLarge(MessageRejected):
    """The records of one batch do not fit into one commit log file."""


class InvalidName(QueueError, ValueError):
    """A topic or group name outside ``^[%a-zA-Z0-9_-]{1,127}$``."""


class UnknownTopic(QueueError, LookupError):
    """Asked about a topic that was never made."""


class TableFull(QueueError):
    """A fixed table of the runtime file has no free slot."""


class HandlerError(QueueError):
    """A handler cannot be registered, loaded or handed to another process."""
