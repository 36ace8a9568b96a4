"""What an application may import from :mod:`rmqclient`: these names, each described, and no other."""

from __future__ import annotations

import pytest

import rmqclient

PUBLIC = {
    "AllocationError",
    "App",
    "ArchiveBusy",
    "ArchiveCorrupt",
    "ArchiveError",
    "ArchiveMismatch",
    "BatchConflict",
    "BatchTooLarge",
    "BodyTooLarge",
    "BodyUnreadable",
    "ClientIdInUse",
    "CompactionConfig",
    "Compression",
    "ConfigMismatch",
    "DataLost",
    "Decision",
    "DiskFailed",
    "FilterError",
    "FlushConfig",
    "Durability",
    "HandlerError",
    "InvalidName",
    "LimitReached",
    "MembershipRefused",
    "Message",
    "MessageExpired",
    "MessageQueue",
    "MessageRejected",
    "NotArchived",
    "NotFlushed",
    "NotInstalled",
    "OffsetOutOfRange",
    "PageCacheBusy",
    "Producer",
    "PropertiesTooLarge",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "QueueError",
    "QueueOwned",
    "ReceivedMessage",
    "RequestFuture",
    "RequestTimeout",
    "RetentionConfig",
    "RetryPolicy",
    "SendResult",
    "SparkUnavailable",
    "StoreBusy",
    "StoreClosed",
    "StoreConfig",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreInUse",
    "StorePoisoned",
    "StoreUnusable",
    "SubscriptionMismatch",
    "Suspend",
    "Table",
    "TableFull",
    "TimerFull",
    "Transaction",
    "TransactionConfig",
    "TransactionDecided",
    "TransactionProducer",
    "TransactionResult",
    "UnknownGroup",
    "UnknownTopic",
    "seconds_left",
}


def test_the_package_offers_exactly_these_names() -> None:
    assert sorted(rmqclient.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_says_what_it_is(name: str) -> None:
    described = getattr(rmqclient, name).__doc__ or ""
    assert without_signature(name, described).strip(), f"{name} has no docstring of its own"


def test_every_exception_of_the_store_that_is_raised_on_purpose_is_offered() -> None:
    raised = {error.__name__ for error in subclasses(rmqclient.QueueError)}
    assert raised <= PUBLIC


def without_signature(name: str, described: str) -> str:
    """Drop the line that dataclasses, named tuples and compiled classes begin their docstring with by themselves."""
    first, _, rest = described.partition("\n")
    return rest if first.startswith(f"{name}(") else described


def subclasses(error: type[Exception]) -> set[type[Exception]]:
    direct = {each for each in error.__subclasses__() if each.__module__.partition(".")[0] in {"store", "rmqclient"}}
    return direct.union(*(subclasses(each) for each in direct))
