"""Bodies worth compressing, and stores that hold them."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from rmqclient import Message, Producer, ReceivedMessage
from rmqclient.store import MessageStore, bodies

LONG = b'{"flight": "UA1545", "delay": 2}' * 200


def messages(store: MessageStore, topic: str) -> list[ReceivedMessage]:
    return [
        store.messages.at(queue, offset)
        for queue in store.topics.queues(topic)
        for offset in range(store.topics.max_offset(queue))
    ]


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Make a package be missing, as one that is not installed."""
    installed = importlib.import_module

    def import_module(name: str) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(name=name)
        return installed(name)

    monkeypatch.setattr(importlib, "import_module", import_module)
    monkeypatch.setattr(bodies, "_zstandard", bodies._Zstandard())


def send_stored(producer: Producer, body: bytes, sys_flag: int, **more: Any) -> None:
    """Send what a careless or a hostile client may: any bytes that are said to be compressed."""
    producer.send(Message("flights", b"", **more).with_body(body, sys_flag))
