"""Everything the queue can raise on purpose, store and client alike.

::

    QueueError
    ├── StoreError
    │   ├── StoreClosed           the handle was closed, or used in a forked child
    │   ├── StoreInUse            a RocketMQ broker has this directory open
    │   ├── StoreBusy             a lock was held longer than the time allowed for it
    │   │   ├── NotFlushed        the message is stored; the flush that its send waited for did not come
    │   │   └── PageCacheBusy     one append has kept the append lock for a second; nothing was written
    │   ├── StoreFull             no room for another file, or the disk is too full; nothing was written
    │   │   └── TimerFull         too many messages wait for their time
    │   ├── LimitReached          a limit on open files, mappings or memory; nothing was written
    │   ├── DiskFailed            an I/O error; nothing was written
    │   ├── StorePoisoned         a flush failed in some process; no append is believed any more
    │   ├── StoreUnusable         the directory, or a file in it, cannot be opened: permission, file system, kind
    │   ├── ConfigMismatch        the directory was made with other fixed settings or by another version
    │   ├── MessageExpired        retention has removed the message
    │   ├── BatchConflict         a batch of a Spark job cannot be written exactly once any more
    │   ├── DataLost              messages that a reader was to read are gone or damaged
    │   └── StoreCorrupt          bytes on disk break the format; carries path and position
    ├── MessageRejected           this message can never be stored; nothing was written
    │   ├── BodyTooLarge
    │   ├── PropertiesTooLarge
    │   └── BatchTooLarge
    ├── BodyUnreadable            a compressed body opens to more than its limit, or not at all
    ├── RequestTimeout            a request is stored, and its reply did not come in time
    ├── InvalidName               a topic or group outside the alphabet or too long
    ├── UnknownTopic              asked about a topic that was never made
    ├── TableFull                 a fixed table of the runtime file has no free slot
    ├── MembershipRefused         a consumer cannot join its group as it is
    │   ├── SubscriptionMismatch  members of the group want other messages, or share them another way
    │   └── ClientIdInUse         a member of the group has the same client id
    ├── ArchiveError              an archive of sealed files cannot be reached, read or written
    │   ├── ArchiveBusy           another process writes to it
    │   ├── ArchiveMismatch       it is another store's, or no archive at all
    │   ├── ArchiveCorrupt        its manifest breaks the format, or its files differ from the manifest
    │   └── NotArchived           retention removed these bytes before they were archived
    ├── AllocationError           a strategy of one's own raised, or gave an answer that cannot be
    ├── SparkUnavailable          pyspark, pyarrow or Java is not installed, or too old
    ├── NotInstalled              a package that is optional is not there
    └── HandlerError              a handler cannot be registered or loaded
        └── FilterError           an expression of its filter; carries the column

Two questions decide what a caller does, so they are attributes and not prose:
``retryable`` (the same call may succeed later) and ``stored`` (whether the message
can be in the log although the call raised).

All of them survive pickling, because workers send them to their supervisor.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What the kernel says when there is no room; it becomes :class:`StoreFull`."""

_NOT_OURS_TO_OPEN = frozenset(
    (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.EISDIR, errno.ENOENT, errno.ENOTDIR, errno.ENXIO)
)


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


class NotFlushed(StoreBusy):
    """The message is stored, and the flush that its send waited for did not come in time, or could not begin.

    Sent again it would be there twice; the next flush makes it durable.
    """

    retryable = False
    stored = True


class PageCacheBusy(StoreBusy):
    """One append has kept the append lock for longer than ``page_cache_busy_timeout_ms``. [OS_PAGECACHE_BUSY]

    The disk is slower than the senders, or the holder is stopped. Nothing was written.
    """


class StoreFull(StoreError):
    """The file system, a quota or a limit leaves no room: for the next file, or below ``disk_full_percent``."""

    retryable = True


class TimerFull(StoreFull):
    """Too many messages wait for their time, or the oldest of them has stayed behind by too many."""


class LimitReached(StoreError):
    """The process or the machine has no descriptor, mapping or memory left for another file."""

    retryable = True


class DiskFailed(StoreError):
    """The disk, or the file system on it, failed while a file was opened, made or read."""


class StorePoisoned(StoreError):
    """A flush failed. The kernel may have dropped dirty pages, so no later flush can be believed.

    Messages appended before may be lost at a power cut; restart every process that uses the store
    after the disk was looked at.
    """

    stored = True


class StoreUnusable(StoreError):
    """The directory, or a file in it, cannot be opened.

    It is not permitted, of another kind than expected, somebody else's, or on a file system without shared mappings.
    """


class ConfigMismatch(StoreError):
    """The directory was made with other fixed settings, or by another version of this library."""


class MessageExpired(StoreError, LookupError):
    """The message was removed by retention: it stood below the oldest file of the commit log."""


class BatchConflict(StoreError):
    """A batch of a Spark job cannot be written exactly once: it was written with other rows, or nobody can tell.

    Nothing was written now. The text says what is known, and what to do.
    """


class DataLost(StoreError):
    """Messages that a reader was to read were removed, or are damaged; ``failOnDataLoss`` of the Spark source."""


class StoreCorrupt(StoreError):
    """Bytes on disk do not follow the format in :mod:`rmqclient.store.layout`."""

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


class TransactionDecided(QueueError):
    """The transaction was committed or rolled back already, by its producer, by a check or by a person."""

    def __init__(self, text: str, *, committed: bool) -> None:
        super().__init__(text)
        self.committed = committed
        """Whether it was committed."""

    def __reduce__(self) -> tuple[object, ...]:
        return _transaction_decided, (str(self), self.committed)


def _transaction_decided(text: str, committed: bool) -> TransactionDecided:
    return TransactionDecided(text, committed=committed)


class BodyUnreadable(QueueError):
    """A compressed body opens to more than ``max_opened_body_bytes``, is damaged, or compressed in an unknown way."""


class RequestTimeout(QueueError, TimeoutError):
    """The request is stored, and its reply did not come in time; its handler may have run, or may yet run."""

    stored = True


class InvalidName(QueueError, ValueError):
    """A topic or group name outside ``^[%a-zA-Z0-9_-]{1,127}$``."""


class UnknownTopic(QueueError, LookupError):
    """Asked about a topic that was never made."""


class UnknownGroup(QueueError, LookupError):
    """Asked about a group that never consumed this topic."""


class OffsetOutOfRange(QueueError, ValueError):
    """A group cannot be moved to this queue offset: the queue never had it."""


class QueueOwned(QueueError):
    """A member of the group has this queue and keeps its offset; nobody else may."""


class MembershipRefused(QueueError):
    """A consumer cannot join its group as it is."""


class SubscriptionMismatch(MembershipRefused):
    """Living members of the group take other messages of the topic, or share its queues in another way.

    Each of them would get messages that only the other one wants, and they would be lost to the group.
    """


class TableFull(QueueError):
    """A fixed table of the runtime file has no free slot."""


class ClientIdInUse(MembershipRefused):
    """A living member of the group has the same client id: both would take themselves for the owner of its queues."""


class ArchiveError(QueueError):
    """An archive of a store's sealed files cannot be reached, read or written; the text names its URL."""


class ArchiveBusy(ArchiveError):
    """Another process archives this store; what it uploads need not be uploaded again."""

    retryable = True


class ArchiveMismatch(ArchiveError):
    """What is at the URL belongs to another store, or is no archive: nothing was written."""


class ArchiveCorrupt(ArchiveError):
    """The manifest of an archive breaks its format, or a file is not as the manifest says."""


class NotArchived(ArchiveError, FileNotFoundError):
    """Neither the store nor its archive has these bytes: retention removed them before they were archived."""


class AllocationError(QueueError, ValueError):
    """A strategy of one's own raised, or gave out unknown queues, to unknown members, or a queue twice."""


class SparkUnavailable(QueueError):
    """Spark cannot be started: pyspark, pyarrow or a Java that it runs on is missing. The text says what to do."""


class NotInstalled(QueueError):
    """What was asked for takes a package that is optional, and is not there. The text says what to install."""


class HandlerError(QueueError):
    """A handler cannot be registered, loaded or handed to another process."""


class FilterError(HandlerError, ValueError):
    """An expression that says which messages a handler gets cannot be understood, or is too large."""

    def __init__(self, text: str, column: int = 0) -> None:
        super().__init__(text)
        self.column = column
        """Of the first character that is wrong, from 1 on; 0 when it is the whole expression."""


@contextmanager
def told_by_system(doing: str) -> Iterator[None]:
    """Turn an ``OSError`` inside of the ``with`` block into the error that :func:`of_system` says."""
    try:
        yield
    except OSError as error:
        raise of_system(error, doing) from error


def of_system(error: OSError, doing: str) -> StoreError:
    """Return what a refusal of the operating system means for a store; ``doing`` names the file and what was tried.

    The text says what to do about it, with the limit that was met.
    """
    what = f"{doing}: {error.strerror or error}"
    if error.filename is not None and str(error.filename) not in what:
        what = f"{what}: {error.filename}"
    if error.errno in NO_ROOM:
        return StoreFull(f"{what}; nothing was written. {_room(error.errno)}")
    match error.errno:
        case errno.EMFILE:
            return LimitReached(f"{what}. Raise RLIMIT_NOFILE (ulimit -n), now {_limit(resource.RLIMIT_NOFILE)}")
        case errno.ENFILE:
            return LimitReached(f"{what}. Raise fs.file-max, or close files in other processes")
        case errno.ENOMEM:
            return LimitReached(
                f"{what}. There is no memory, or one of these limits was met: vm.max_map_count, now "
                f"{_most_mappings()} (this process has {_mapping_count()} mappings: lower max_mapped_files), RLIMIT_AS "
                f"(ulimit -v), now {_limit(resource.RLIMIT_AS)}"
            )
    return StoreUnusable(what) if error.errno in _NOT_OURS_TO_OPEN else DiskFailed(f"{what}. Look at the disk")


def _room(code: int | None) -> str:
    if code == errno.EFBIG:
        return f"Raise RLIMIT_FSIZE (ulimit -f), now {_limit(resource.RLIMIT_FSIZE)}, or what the file system allows"
    if code == errno.EDQUOT:
        return "Raise the quota, or remove files of the same owner"
    return "Make room: see df, and df -i for inodes"


def _limit(name: int) -> str:
    soft, _ = resource.getrlimit(name)
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)


def _most_mappings() -> str:
    try:
        return Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _mapping_count() -> str:
    try:
        with Path("/proc/self/maps").open("rb") as maps:
            return str(sum(1 for _ in maps))
    except OSError:
        return "unknown"
