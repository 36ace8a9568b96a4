"""Search: messages by id, key, time and place, and by what is in them.

A query that reads one message after the other looks at ``LOOKED_AT_MOST`` messages, the newest first, for at most
``LONGEST_S``, and says so. An expression has the limits of a body filter.
"""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from rmqclient.backend import Backend
from rmqclient.errors import BodyUnreadable, FilterError, NotInstalled
from rmqclient.filters.body import EVALUATION_ERRORS, MAX_BODY_BYTES, parsed
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageQueue
from rmqclient.store.errors import MessageExpired, StoreCorrupt

LOOKED_AT_MOST = 2_000
LONGEST_S = 10.0
"""How long one search looks at messages."""


class WrongQuery(ValueError):
    """The query is no JMESPath; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What messages are wanted; every condition must hold."""

    topic: str = ""
    message_id: str = ""
    key: str = ""
    place: tuple[int, int] | None = None
    """Queue id and queue offset of the first one."""
    since_ms: int | None = None
    until_ms: int | None = None
    where: str = ""
    """JMESPath on ``body`` (opened JSON), ``keys``, ``tags``, ``properties``, ``queue_id`` and ``queue_offset``."""
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Found:
    """Messages, the newest first, and whether more may be there."""

    messages: list[ReceivedMessage]
    looked_at: int
    is_complete: bool


def search(backend: Backend, wanted: Search) -> Found:
    """Return the messages that are wanted. Raises UnknownTopic, WrongQuery, StoreBusy, StoreFull."""
    holds = _condition(wanted.where)
    found: list[ReceivedMessage] = []
    looked_at = 0
    end = time.monotonic() + LONGEST_S
    for message in _candidates(backend, wanted):
        if len(found) >= wanted.limit or looked_at >= LOOKED_AT_MOST or time.monotonic() > end:
            return Found(found, looked_at, is_complete=False)
        looked_at += 1
        if holds(message):
            found.append(message)
    return Found(found, looked_at, is_complete=True)


def facts_of(message: ReceivedMessage) -> dict[str, Any]:
    """Return what a query is asked about; the body is None unless it is JSON of up to 1 MiB."""
    body: Any = None
    with contextlib.suppress(orjson.JSONDecodeError, BodyUnreadable, NotInstalled):
        opened = message.open_body()
        body = orjson.loads(opened) if len(opened) <= MAX_BODY_BYTES else None
    return {
        "body": body,
        "keys": list(message.keys),
        "tags": message.tags,
        "properties": dict(message.properties),
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
    }


def _condition(where: str) -> Any:
    if not where:
        return lambda _message: True
    try:
        expression = parsed(where)
    except FilterError as error:
        raise WrongQuery(str(error)) from error

    def holds(message: ReceivedMessage) -> bool:
        try:
            return expression.search(facts_of(message)) not in (None, False, [], {}, "")
        except EVALUATION_ERRORS:  # such as a number that is compared with a text
            return False

    return holds


def _candidates(backend: Backend, wanted: Search) -> Iterator[ReceivedMessage]:
    if wanted.message_id:
        message = backend.messages.by_id(wanted.message_id, wanted.topic or None)
        yield from [] if message is None else [message]
    elif not wanted.topic:
        return
    elif wanted.key:
        until = wanted.until_ms if wanted.until_ms is not None else (1 << 63) - 1
        yield from backend.messages.by_key(wanted.topic, wanted.key, wanted.since_ms or 0, until, LOOKED_AT_MOST + 1)
    elif wanted.place is not None:
        yield from _from_place(backend, wanted.topic, *wanted.place)
    else:
        rows = [_backwards(backend, queue, wanted) for queue in backend.topics.queues(wanted.topic)]
        yield from heapq.merge(*rows, key=lambda message: -message.store_timestamp)


def _from_place(backend: Backend, topic: str, queue_id: int, queue_offset: int) -> Iterator[ReceivedMessage]:
    for queue in backend.topics.queues(topic):
        if queue.queue_id == queue_id:
            low, high = backend.queues.span(queue)
            yield from _read(backend, queue, range(max(low, queue_offset), high))


def _backwards(backend: Backend, queue: MessageQueue, wanted: Search) -> Iterator[ReceivedMessage]:
    low, high = backend.queues.span(queue)
    if wanted.since_ms is not None:
        low = max(low, backend.queues.offset_by_time(queue, wanted.since_ms))
    if wanted.until_ms is not None:
        high = min(high, backend.queues.offset_by_time(queue, wanted.until_ms + 1))
    yield from _read(backend, queue, range(high - 1, low - 1, -1))


def _read(backend: Backend, queue: MessageQueue, offsets: Iterable[int]) -> Iterator[ReceivedMessage]:
    for offset in offsets:
        with contextlib.suppress(MessageExpired, StoreCorrupt):
            yield backend.queues.message_at(queue, offset)
