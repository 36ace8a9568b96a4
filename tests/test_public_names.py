"""The public names of :mod:`rmqclient`: these and no others, each with a docstring."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rmqclient

PUBLIC = {
    "App",
    "Batch",
    "CompactionConfig",
    "Compression",
    "ConsumerConfig",
    "Decision",
    "Depends",
    "Durability",
    "FlushConfig",
    "HandlerCall",
    "Inbox",
    "Message",
    "MessageFields",
    "MessageQueue",
    "Outbox",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "Relay",
    "RequestFuture",
    "RetentionConfig",
    "RetryPolicy",
    "SendFuture",
    "SendResult",
    "Sending",
    "StoreConfig",
    "Suspend",
    "Table",
    "Transaction",
    "TransactionConfig",
    "TransactionProducer",
    "TransactionResult",
    "current_message",
    "jmespath",
    "seconds_left",
    "sql",
}


def test_the_package_offers_exactly_these_names() -> None:
    assert sorted(rmqclient.__all__) == sorted(PUBLIC)


def test_each_public_name_says_what_it_is() -> None:
    described = {name: getattr(rmqclient, name).__doc__ or "" for name in sorted(PUBLIC)}
    assert [name for name, text in described.items() if not without_signature(name, text).strip()] == []


def test_a_name_comes_from_where_a_type_checker_finds_it() -> None:
    imports = ast.walk(ast.parse(Path(rmqclient.__file__).read_text(encoding="utf-8")))
    seen = {alias.name: node.module for node in imports if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {name: seen[name] for name in PUBLIC} == rmqclient._HOMES


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        rmqclient.Nothing  # type: ignore[attr-defined]  # noqa: B018


def without_signature(name: str, described: str) -> str:
    """Drop the line that dataclasses, named tuples and compiled classes begin their docstring with by themselves."""
    first, _, rest = described.partition("\n")
    return rest if first.startswith(f"{name}(") else described
