"""Every exception that rmqclient raises on purpose: the client's own, and those of the store, archives and clusters.

::

    QueueError
    ├── StoreError
    │   ├── StoreClosed           the handle was closed, or used in a forked child
    │   │   └── StoreReplaced     its directory was removed, renamed or replaced while it was open
    │   ├── StoreInUse            a RocketMQ broker has this directory open
    │   ├── StoreBusy             a lock was held longer than the time allowed for it
    │   │   ├── NotFlushed        the message is stored; the flush that its send waited for did not come
    │   │   └── PageCacheBusy     one append has kept the append lock for a second; nothing was written
    │   ├── StoreFull             no room for another file, or the disk is too full; nothing was written
    │   │   └── TimerFull         too many delayed messages are pending
    │   ├── LimitReached          a limit on open files, mappings or memory; nothing was written
    │   ├── DiskFailed            an I/O error; nothing was written
    │   ├── StorePoisoned         a flush failed in some process; later appends are refused
    │   ├── StoreUnusable         the directory, or a file in it, cannot be opened: permission, file system, kind
    │   ├── ReadOnlyReplica       the store follows another one; nothing was written
    │   │   └── StoreFenced       another store took the place of this one; nothing was written
    │   ├── StoreUnsettled        the store lost power, and waits for what its replica has; nothing was changed
    │   ├── ReplicaUnavailable    too few replicas are in sync for a send that waits for them; nothing was written
    │   ├── NotReplicated         the message is stored; the replicas that its send waited for have not said so
    │   ├── LogsDiffer            the logs of a replica and its primary are not the same; nothing was changed
    │   ├── ConfigMismatch        the directory was made with other fixed settings or by another version
    │   ├── MessageExpired        retention has removed the message
    │   ├── BatchConflict         a batch of a Spark job can no longer be written exactly once
    │   ├── DataLost              messages that a Spark reader asked for are gone or damaged
    │   └── StoreCorrupt          bytes on disk break the format; carries path and position
    ├── MessageRejected           this message can never be stored; nothing was written
    │   ├── BodyTooLarge          its body is longer than the store allows
    │   ├── PropertiesTooLarge    its tags, keys and properties are longer than the format allows
    │   ├── BatchTooLarge         its batch is longer than one file of the log
    │   ├── StepRejected          a step has no valid name, or a result that cannot be stored, or is one too many
    │   ├── ReplyRejected         what a handler returned cannot be stored as its reply
    │   └── LettersRejected       some dead letters cannot be stored again; carries them. The others were replayed
    ├── RecordsDamaged            a broker sent records that break the format; carries the position
    ├── TransactionDecided        the transaction was already committed or rolled back; carries which
    ├── BodyDoesNotFit            a body cannot be decoded into what its handler takes; a dead letter at once
    ├── BodyUnreadable            a compressed body exceeds its limit when decompressed, or cannot be decompressed
    ├── RequestTimeout            a request is stored, and its reply did not come in time
    ├── InvalidName               a topic or group outside the alphabet or too long
    ├── UnknownTopic              the topic does not exist
    │   └── TopicNotWritable      the topic takes no messages now; nothing was written
    ├── UnknownGroup              the group never consumed this topic
    ├── OffsetOutOfRange          the queue never had this offset
    ├── QueueOwned                a member of the group has this queue and keeps its offset
    ├── TableFull                 a fixed table of the runtime file has no free slot
    ├── MembershipRefused         a consumer cannot join its group as it is
    │   ├── SubscriptionMismatch  members of the group want other messages, or share them another way
    │   └── ClientIdInUse         a member of the group has the same client id
    ├── ArchiveError              an archive of sealed files cannot be reached, read or written
    │   ├── ArchiveBusy           another process writes to it
    │   ├── ArchiveMismatch       the URL holds another store's archive, or something that is not an archive
    │   ├── ArchiveCorrupt        its manifest breaks the format, or its files differ from the manifest
    │   └── NotArchived           retention removed these bytes before they were archived
    ├── AllocationError           an allocation function raised, or its answer does not fit its queues and members
    ├── ClusterError              a RocketMQ cluster could not be asked, or cannot do what was asked
    │   ├── InvalidURL            the URL of a cluster says something that is not understood
    │   ├── BrokerUnreachable     no connection to this broker; nothing was sent
    │   │   ├── ConnectionLost    the connection ended before the answer came; the request may have been done
    │   │   └── TlsFailed         the peer speaks no TLS, or its certificate is not trusted
    │   ├── NameServerUnreachable no name server answered
    │   ├── RequestTimedOut       no answer in time; the request may have been done
    │   ├── ConnectionFull        too many bytes wait for a slow broker; this request was not sent
    │   ├── ProducerFull          too many sends that nobody waits for are under way; this one was not sent
    │   ├── BatchStoredInPart     the first messages of a batch are stored, the others are not, or may not be
    │   └── NotOnCluster          a cluster cannot do this; the text says what to do instead
    ├── ServeError                `rmq serve` cannot start, or go on, as it was told to
    │   ├── CannotListen          the address is taken, or does not belong to this host
    │   ├── TlsUnusable           no certificate or no key in a file, or none can be made here
    │   └── AccountsUnusable      the file of access keys cannot be read, or has an invalid rule
    ├── RemotingError             the protocol was not followed, or a peer said no
    │   ├── FrameError            bytes that are not a frame, or a frame of more than 16 MiB
    │   ├── HeaderError           a field is missing, unknown or of a wrong type
    │   │   └── PlaceUnknown      the message is stored, but the broker's answer does not say where
    │   ├── BodyError             a body does not follow the format of its request
    │   └── AnswerError           a broker or name server says no; carries code, remark and address
    │       ├── SystemBusy             it refuses for now
    │       ├── RequestNotSupported    it does not know this request
    │       ├── StoredInPart           the message is stored, but not yet flushed or copied to a slave
    │       ├── MessageIllegal         the message is too long, or its properties are
    │       ├── ServiceNotAvailable    it cannot write now
    │       ├── NoPermission           it forbids this, or the signature is wrong
    │       ├── TopicNotFound          it does not have the topic
    │       ├── QueryNotFound          it has nothing that fits the question
    │       ├── SubscriptionInvalid    the filter does not parse
    │       ├── SubscriptionNotFound   it does not know what the group subscribes to
    │       ├── SubscriptionNotLatest  it knows only an older subscription of the group
    │       ├── GroupNotFound          it does not have the group
    │       ├── InvalidParameter       a field has a value that it refuses
    │       ├── ConsumerNotOnline      no member of the group is connected
    │       ├── ConsumeTimedOut        the member did not answer the peer in time
    │       └── GoAway                 it is about to close this connection
    ├── SparkUnavailable          pyspark, pyarrow or Java is missing or too old
    ├── WorkersEnded              the workers of `with app.workers()` ended before the block
    ├── ThreadLost                a thread of the library ended by an error, so the process does a part of its work only
    ├── NotInstalled              an optional package is missing
    ├── StepError                 a durable step cannot go on
    │   ├── StepChanged           the handler no longer asks for what is stored, or a result no longer decodes
    │   └── StepsLost             results that the message had are not in the store any more
    ├── SignalTimeout             what a step waited for did not come in time
    └── HandlerError              a handler cannot be registered or loaded
        └── FilterError           an expression of its filter is invalid; carries the column

Two class attributes answer the questions that decide what a caller does next: ``retryable`` (the same call may succeed
later) and ``stored`` (the message can be in the log although the call raised).

Every exception survives pickling, because workers send exceptions to their supervisor. A traceback shows the module
that defines the class, such as ``rmqclient.store.errors.StoreFull``; import the class from here all the same. Those of
RocketMQ's protocol, from RemotingError on, are imported when they are first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqclient.archive.errors import ArchiveBusy, ArchiveCorrupt, ArchiveError, ArchiveMismatch, NotArchived
from rmqclient.store.errors import (
    BatchTooLarge,
    BodyTooLarge,
    BodyUnreadable,
    ClientIdInUse,
    ConfigMismatch,
    DiskFailed,
    HandlerError,
    InvalidName,
    LimitReached,
    LogsDiffer,
    MembershipRefused,
    MessageExpired,
    MessageRejected,
    NotFlushed,
    NotInstalled,
    NotReplicated,
    OffsetOutOfRange,
    PageCacheBusy,
    PropertiesTooLarge,
    QueueError,
    QueueOwned,
    ReadOnlyReplica,
    RecordsDamaged,
    ReplicaUnavailable,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFenced,
    StoreFull,
    StoreInUse,
    StorePoisoned,
    StoreReplaced,
    StoreUnsettled,
    StoreUnusable,
    SubscriptionMismatch,
    TableFull,
    ThreadLost,
    TimerFull,
    TopicNotWritable,
    TransactionDecided,
    UnknownGroup,
    UnknownTopic,
)

if TYPE_CHECKING:
    from rmqclient.message import SendResult
    from rmqclient.remoting.errors import (
        AnswerError,
        BodyError,
        ConsumerNotOnline,
        ConsumeTimedOut,
        FrameError,
        GoAway,
        GroupNotFound,
        HeaderError,
        InvalidParameter,
        MessageIllegal,
        NoPermission,
        PlaceUnknown,
        QueryNotFound,
        RemotingError,
        RequestNotSupported,
        ServiceNotAvailable,
        StoredInPart,
        SubscriptionInvalid,
        SubscriptionNotFound,
        SubscriptionNotLatest,
        SystemBusy,
        TopicNotFound,
    )

__all__ = [
    "AccountsUnusable",
    "AllocationError",
    "AnswerError",
    "ArchiveBusy",
    "ArchiveCorrupt",
    "ArchiveError",
    "ArchiveMismatch",
    "BatchConflict",
    "BatchStoredInPart",
    "BatchTooLarge",
    "BodyDoesNotFit",
    "BodyError",
    "BodyTooLarge",
    "BodyUnreadable",
    "BrokerUnreachable",
    "CannotListen",
    "ClientIdInUse",
    "ClusterError",
    "ConfigMismatch",
    "ConnectionFull",
    "ConnectionLost",
    "ConsumeTimedOut",
    "ConsumerNotOnline",
    "DataLost",
    "DiskFailed",
    "FilterError",
    "FrameError",
    "GoAway",
    "GroupNotFound",
    "HandlerError",
    "HeaderError",
    "InvalidName",
    "InvalidParameter",
    "InvalidURL",
    "LettersRejected",
    "LimitReached",
    "LogsDiffer",
    "MembershipRefused",
    "MessageExpired",
    "MessageIllegal",
    "MessageRejected",
    "NameServerUnreachable",
    "NoPermission",
    "NotArchived",
    "NotFlushed",
    "NotInstalled",
    "NotOnCluster",
    "NotReplicated",
    "OffsetOutOfRange",
    "PageCacheBusy",
    "PlaceUnknown",
    "ProducerFull",
    "PropertiesTooLarge",
    "QueryNotFound",
    "QueueError",
    "QueueOwned",
    "ReadOnlyReplica",
    "RecordsDamaged",
    "RemotingError",
    "ReplicaUnavailable",
    "ReplyRejected",
    "RequestNotSupported",
    "RequestTimedOut",
    "RequestTimeout",
    "ServeError",
    "ServiceNotAvailable",
    "SignalTimeout",
    "SparkUnavailable",
    "StepChanged",
    "StepError",
    "StepRejected",
    "StepsLost",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFenced",
    "StoreFull",
    "StoreInUse",
    "StorePoisoned",
    "StoreReplaced",
    "StoreUnsettled",
    "StoreUnusable",
    "StoredInPart",
    "SubscriptionInvalid",
    "SubscriptionMismatch",
    "SubscriptionNotFound",
    "SubscriptionNotLatest",
    "SystemBusy",
    "TableFull",
    "ThreadLost",
    "TimerFull",
    "TlsFailed",
    "TlsUnusable",
    "TopicNotFound",
    "TopicNotWritable",
    "TransactionDecided",
    "UnknownGroup",
    "UnknownTopic",
    "WorkersEnded",
]

_OF_THE_PROTOCOL = frozenset(
    (
        "AnswerError",
        "BodyError",
        "ConsumeTimedOut",
        "ConsumerNotOnline",
        "FrameError",
        "GoAway",
        "GroupNotFound",
        "HeaderError",
        "InvalidParameter",
        "MessageIllegal",
        "NoPermission",
        "PlaceUnknown",
        "QueryNotFound",
        "RemotingError",
        "RequestNotSupported",
        "ServiceNotAvailable",
        "StoredInPart",
        "SubscriptionInvalid",
        "SubscriptionNotFound",
        "SubscriptionNotLatest",
        "SystemBusy",
        "TopicNotFound",
    )
)


if not TYPE_CHECKING:  # or a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in _OF_THE_PROTOCOL:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module("rmqclient.remoting.errors"), name)


class RequestTimeout(QueueError, TimeoutError):
    """The request is stored, and its reply did not come in time; its handler may have run, or may still run."""

    stored = True


class StepError(QueueError):
    """A durable step cannot go on; docs/handling/steps.md says what to do."""


class StepChanged(StepError):
    """The handler asks for other steps than those whose results are stored, or a result does not decode to its type.

    A step was renamed, added before one that is finished, or returns another type: the results of messages that are
    under way belong to the handler as it was.
    """


class StepsLost(StepError):
    """Results that a message had are not in the store any more: retention, or a full disk, removed them."""


class StepRejected(MessageRejected):
    """A step has no valid name, or one that was used, or a result that cannot be stored, or is one too many.

    The message is a dead letter at once: each attempt would do again what the step has done.
    ``RetryPolicy(retry_on=(StepRejected, ...))`` retries it.
    """


class ReplyRejected(MessageRejected):
    """What a handler returned for a request cannot be stored as the reply: it is too long, or cannot be encoded.

    The message is a dead letter at once: each attempt would do again what the handler has done.
    ``RetryPolicy(retry_on=(ReplyRejected, ...))`` retries it.
    """


class LettersRejected(MessageRejected):
    """Some dead letters of a replay cannot be stored again, and wait as before. The others were replayed."""

    def __init__(self, message_ids: tuple[str, ...], reason: str) -> None:
        what = "1 dead letter" if len(message_ids) == 1 else f"{len(message_ids)} dead letters"
        super().__init__(f"{what} cannot be stored again: {', '.join(message_ids)}; the last one: {reason}")
        self.message_ids = message_ids
        """Their ids, in the order of the replay."""
        self.reason = reason
        """Why the last of them could not be stored."""

    def __reduce__(self) -> tuple[type[LettersRejected], tuple[object, ...]]:
        return type(self), (self.message_ids, self.reason)


class SignalTimeout(QueueError, TimeoutError):
    """The signal that a step waited for did not come in time. It is so for good: a later signal changes nothing."""


class BatchConflict(StoreError):
    """A batch of a Spark job cannot be written exactly once: it was written with other rows, or its fate is unknown.

    This attempt wrote nothing. The text says what is known, and what to do.
    """


class DataLost(StoreError):
    """Messages that a Spark reader asked for were removed or are damaged; see the source's ``failOnDataLoss``."""


class WorkersEnded(QueueError):
    """The workers of a ``with app.workers()`` ended before the block, or before they were ready; with the reason."""


class BodyDoesNotFit(QueueError):
    """A body cannot be decoded into what its handler takes: the message is a dead letter at once.

    The exception of the decoder is its ``__cause__``. ``RetryPolicy(retry_on=(BodyDoesNotFit, ...))`` retries it.
    """


class FilterError(HandlerError, ValueError):
    """A filter expression cannot be parsed, or is too large."""

    def __init__(self, text: str, column: int = 0) -> None:
        super().__init__(text)
        self.column = column
        """Position of the first wrong character, counted from 1; 0 if the whole expression is wrong."""


class AllocationError(QueueError, ValueError):
    """An allocation function raised, or its answer has unknown queues, unknown members, or a queue twice."""


class SparkUnavailable(QueueError):
    """Spark cannot be started: pyspark, pyarrow or a Java to run it is missing. The text says what to do."""


class ClusterError(QueueError):
    """A RocketMQ cluster could not be asked, or cannot do what was asked."""


class InvalidURL(ClusterError, ValueError):
    """The URL of a cluster, or an option of it, is not understood. The text never has the secret key."""


class BrokerUnreachable(ClusterError):
    """There is no connection to this broker or name server, and none could be made in time. Nothing was sent."""

    retryable = True


class ConnectionLost(BrokerUnreachable):
    """The connection ended before the answer came: the broker may have done what was asked."""

    stored = True


class TlsFailed(BrokerUnreachable):
    """The TLS handshake failed: the peer speaks no TLS, or its certificate is not trusted. Nothing was sent."""

    retryable = False


class NameServerUnreachable(ClusterError):
    """No name server of the URL answered. The text has the reason of each."""

    retryable = True


class RequestTimedOut(ClusterError, TimeoutError):
    """The broker or name server did not answer in time: it may have done what was asked, or may still do it."""

    retryable = True
    stored = True


class ConnectionFull(ClusterError):
    """More bytes wait for a slow broker than one connection may keep. This request was not sent."""

    retryable = True


class ProducerFull(ClusterError):
    """As many sends that nobody waits for are under way as one producer may have. This one was not sent."""

    retryable = True


class BatchStoredInPart(ClusterError):
    """A batch needed several requests, and a later one failed: the first messages are stored.

    ``results`` says where these stand; the error that ended the batch is the ``__cause__``, and says whether the next
    messages may be stored, too.
    """

    stored = True

    def __init__(self, text: str, results: Sequence[SendResult] = ()) -> None:
        super().__init__(text)
        self.results = list(results)
        """Of the messages that are stored for certain, in the order of the batch."""

    def __reduce__(self) -> tuple[type[BatchStoredInPart], tuple[str, list[SendResult]]]:
        return type(self), (str(self), self.results)


class NotOnCluster(ClusterError):
    """A RocketMQ cluster, or one of this version, cannot do this. The text says what to do instead."""


class ServeError(QueueError):
    """``rmq serve`` cannot start, or go on, as it was told to."""


class CannotListen(ServeError):
    """The address is taken, or does not belong to this host."""


class TlsUnusable(ServeError, ValueError):
    """A file has no certificate or no key in it, or no certificate can be made here."""


class AccountsUnusable(ServeError, ValueError):
    """The file of access keys cannot be read, or has an invalid rule."""
