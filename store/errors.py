"""The exceptions that the store raises on purpose.

Applications import them from :mod:`rmqclient.errors`, which also draws the tree of all exceptions. Two class attributes
answer the questions that decide what a caller does next: ``retryable`` (the same call may succeed later) and ``stored``
(the message can be in the log although the call raised).

Every exception survives pickling, because workers send exceptions to their supervisor.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Error numbers that mean "no room"; they become :class:`StoreFull`."""

_NOT_OURS_TO_OPEN = frozenset(
    (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.EISDIR, errno.ENOENT, errno.ENOTDIR, errno.ENXIO)
)


class QueueError(Exception):
    """Base class of every exception that is raised on purpose."""

    retryable: ClassVar[bool] = False
    stored: ClassVar[bool] = False


class StoreError(QueueError):
    """The store directory is at fault, rather than one message."""


class StoreClosed(StoreError):
    """The handle was closed, or belongs to the process from which this one was forked."""


class StoreReplaced(StoreClosed):
    """The directory at the path of the store is no longer the one that this process has open.

    It was removed, renamed or replaced. Nothing was written there, and this process can do nothing more with the store
    that it has open: close it, or end.
    """


class StoreInUse(StoreError):
    """A RocketMQ broker has the directory open; stop the broker first."""

    retryable = True


class StoreBusy(StoreError):
    """A lock between processes was held longer than the time allowed for it."""

    retryable = True
    holders: tuple[int, ...] = ()
    """Processes that hold it, as far as they can be seen. The message says which of them stand still."""


class NotFlushed(StoreBusy):
    """The message is stored, and the flush that its send waited for did not come in time, or could not begin.

    Sending it again would store it twice; the next flush makes it durable.
    """

    retryable = False
    stored = True


class PageCacheBusy(StoreBusy):
    """One append has kept the append lock for longer than ``page_cache_busy_timeout_ms``. [OS_PAGECACHE_BUSY]

    The disk is slower than the senders, or the process that holds the lock is stopped. Nothing was written.
    """


class StoreFull(StoreError):
    """The file system, a quota or a limit has no room for the next file, or usage exceeds ``disk_full_percent``."""

    retryable = True


class TimerFull(StoreFull):
    """Too many delayed messages are pending, or too many have come since the oldest pending one."""


class LimitReached(StoreError):
    """The process or the machine has no descriptor, mapping or memory left for another file, or no thread."""

    retryable = True


class DiskFailed(StoreError):
    """The disk, or the file system on it, failed while a file was opened, created or read."""


class StorePoisoned(StoreError):
    """A flush failed. The kernel may have dropped dirty pages, so a later flush proves nothing.

    A power cut may lose messages appended before. Check the disk, then restart every process that uses the store.
    """

    stored = True


class StoreUnusable(StoreError):
    """The directory, or a file in it, cannot be opened.

    Permission is missing, it is of an unexpected kind, another owner has it, or its file system has no shared mappings.
    """


class ReadOnlyReplica(StoreError):
    """The store follows another one, its primary, and takes nothing but what comes from there."""


class StoreFenced(ReadOnlyReplica):
    """Another store took the place of this one: it was promoted, and this store knows. Nothing was written."""


class StoreUnsettled(StoreError):
    """The store lost power, and its replica may have messages that the store lost. The text says how to go on."""

    retryable = True


class ReplicaUnavailable(StoreError):
    """The store takes a message only with followers that have it, and too few are in sync; nothing was written."""

    retryable = True


class NotReplicated(StoreError):
    """The message is stored, and the followers that its send waited for have not said in time that they have it.

    Sending it again would store it twice. They may have it, or get it later; a promotion of one of them may be without
    it.
    """

    stored = True


class LogsDiffer(StoreError):
    """The log of a replica and that of its primary are not the same where both have bytes; nothing was changed."""


class ConfigMismatch(StoreError):
    """The directory was made with other fixed settings, or by another version of this library."""


class MessageExpired(StoreError, LookupError):
    """Retention removed the message: its position is below the oldest file of the commit log."""


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


class RecordsDamaged(QueueError):
    """Bytes that a broker sent as records do not follow the format."""

    def __init__(self, position: int, size: int, reason: str) -> None:
        super().__init__(f"byte {position} of {size} bytes of records: {reason}")
        self.position = position
        self.size = size
        self.reason = reason

    def __reduce__(self) -> tuple[type[RecordsDamaged], tuple[int, int, str]]:
        return type(self), (self.position, self.size, self.reason)


class MessageRejected(QueueError):
    """This message can never be stored; nothing was written."""


class BodyTooLarge(MessageRejected):
    """The body is longer than ``max_body_bytes``."""


class PropertiesTooLarge(MessageRejected):
    """Tags, keys and properties together take more than 31,000 bytes on disk; those of a copy more than 32,767."""


class BatchTooLarge(MessageRejected):
    """The records of one batch do not fit into one commit log file."""


class TransactionDecided(QueueError):
    """The transaction was already committed or rolled back: by its producer, by a check or from the command line."""

    def __init__(self, text: str, *, committed: bool) -> None:
        super().__init__(text)
        self.committed = committed
        """True if the transaction was committed, False if it was rolled back."""

    def __reduce__(self) -> tuple[object, ...]:
        return _transaction_decided, (str(self), self.committed)


def _transaction_decided(text: str, committed: bool) -> TransactionDecided:
    return TransactionDecided(text, committed=committed)


class BodyUnreadable(QueueError):
    """A compressed body exceeds ``max_opened_body_bytes`` when decompressed, is damaged, or has an unknown method."""


class InvalidName(QueueError, ValueError):
    """A topic or group name outside ``^[%a-zA-Z0-9_-]{1,127}$``."""


class UnknownTopic(QueueError, LookupError):
    """The topic does not exist."""


class TopicNotWritable(UnknownTopic):
    """The topic takes no messages now: it has no permission to be written, or no queue for it; nothing was written.

    ``rmq topic update TOPIC --perm rw`` opens it.
    """

    retryable = True


class UnknownGroup(QueueError, LookupError):
    """The group never consumed this topic."""


class OffsetOutOfRange(QueueError, ValueError):
    """A group cannot be moved to this queue offset: the queue never had it."""


class QueueOwned(QueueError):
    """A member of the group has this queue, and only that member may set its offset."""


class MembershipRefused(QueueError):
    """A consumer cannot join its group as it is."""


class SubscriptionMismatch(MembershipRefused):
    """Living members of the group take other messages of the topic, or share its queues in another way.

    If both joined, each would get messages that only the other wants, and the group would lose these messages.
    """


class TableFull(QueueError):
    """A fixed table of the runtime file has no free slot."""


class ClientIdInUse(MembershipRefused):
    """A living member of the group has the same client id: both members would act as the owner of its queues."""


class HandlerError(QueueError):
    """A handler cannot be registered, loaded or copied; or something that is only for a running handler was used."""


class ThreadLost(QueueError):
    """A thread of the library ended by an error, which is the cause: its process does only a part of its work.

    What it had not finished is delivered again, elsewhere or after a restart.
    """


class NotInstalled(QueueError):
    """This feature needs an optional package that is missing. The text says what to install."""


@contextmanager
def store_errors(doing: str) -> Iterator[None]:
    """Turn an ``OSError`` inside the ``with`` block into the exception that :func:`as_store_error` returns."""
    try:
        yield
    except OSError as error:
        raise as_store_error(error, doing) from error


def as_store_error(error: OSError, doing: str) -> StoreError:
    """Return the store's exception for an error of the operating system.

    ``doing`` names the file and the operation. The text names the limit that was reached, and says what to do.
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


def no_thread(name: str, error: RuntimeError) -> LimitReached:
    """Return the store's exception for a thread that could not be started."""
    return LimitReached(
        f"thread {name} cannot be started: {error}. There is no memory, or one of these limits was met: RLIMIT_NPROC "
        f"(ulimit -u), now {_limit(resource.RLIMIT_NPROC)}, RLIMIT_AS (ulimit -v), now {_limit(resource.RLIMIT_AS)}, "
        "pids.max of the control group"
    )


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
