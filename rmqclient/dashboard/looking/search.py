"""Search: messages by id, key, time, position and content, in one topic or in all, a page at a time.

A search that reads one message after the other, the newest first, does so for a slice of time. It says where it
stopped, and the next page goes on there. An expression has the limits of a body filter.
"""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from rmqclient.backend import Backend
from rmqclient.errors import BodyUnreadable, FilterError, NotInstalled, UnknownTopic
from rmqclient.filters.body import EVALUATION_ERRORS, MAX_BODY_BYTES, parsed
from rmqclient.message import ReceivedMessage
from rmqclient.names import has_copies, is_of_application
from rmqclient.store import SCHEDULE_TOPIC, TIMER_TOPIC, MessageQueue
from rmqclient.store.errors import MessageExpired, StoreCorrupt

SLICE_S = 0.08
"""How long one page looks at messages."""
_END_OF_TIME = (1 << 63) - 1
_MOST_OF_A_KEY = 1 << 20


class WrongQuery(ValueError):
    """The query is no JMESPath; the text says why."""


class Below(NamedTuple):
    """A message; the next page has those that are older."""

    stored_ms: int
    topic: str
    queue_id: int
    offset: int

    @classmethod
    def of(cls, message: ReceivedMessage) -> Below:
        """Return the place of a message."""
        return cls(message.store_timestamp, message.topic, message.queue_id, message.queue_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What messages are wanted; every condition must hold."""

    topic: str = ""
    """Empty for every topic of an application; of ids and keys, the copies of its messages, too."""
    message_id: str = ""
    keys: tuple[str, ...] = ()
    """Each may also be an id. A message has one of them."""
    tag: str = ""
    place: tuple[int, int] | None = None
    """Queue id and queue offset of the first one."""
    since_ms: int | None = None
    until_ms: int | None = None
    where: str = ""
    """JMESPath on ``body`` (opened JSON), ``keys``, ``tags``, ``properties``, ``queue_id`` and ``queue_offset``."""
    below: Below | None = None
    limit: int = 50
    longest_s: float = SLICE_S

    @property
    def is_empty(self) -> bool:
        """Whether nothing says which messages are wanted."""
        return self == Search(below=self.below, limit=self.limit, longest_s=self.longest_s)


@dataclass(frozen=True, slots=True)
class Found:
    """Messages, the newest first, and where the next page goes on."""

    messages: list[ReceivedMessage]
    looked_at: int
    last: ReceivedMessage | None
    """The last one that was looked at; None if there are no more."""


def search(backend: Backend, wanted: Search) -> Found:
    """Return the messages that are wanted. Raises UnknownTopic, WrongQuery, StoreBusy, StoreFull."""
    holds = _condition(wanted)
    found: list[ReceivedMessage] = []
    looked_at, last = 0, None
    end = time.monotonic() + wanted.longest_s
    for message in _candidates(backend, wanted):
        if len(found) >= wanted.limit or (looked_at and time.monotonic() > end):
            return Found(found, looked_at, last)
        looked_at, last = looked_at + 1, message
        if holds(message):
            found.append(message)
    return Found(found, looked_at, None)


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


def _condition(wanted: Search) -> Callable[[ReceivedMessage], bool]:
    has_tag: Callable[[ReceivedMessage], bool] = lambda message: wanted.tag in ("", message.tags)  # noqa: E731
    if not wanted.where:
        return has_tag
    try:
        expression = parsed(wanted.where)
    except FilterError as error:
        raise WrongQuery(str(error)) from error

    def holds(message: ReceivedMessage) -> bool:
        try:
            return has_tag(message) and expression.search(facts_of(message)) not in (None, False, [], {}, "")
        except EVALUATION_ERRORS:  # such as a number that is compared with a text
            return False

    return holds


def _candidates(backend: Backend, wanted: Search) -> Iterator[ReceivedMessage]:
    if wanted.is_empty:
        return
    if wanted.topic and wanted.topic not in backend.topics.names():
        raise UnknownTopic(wanted.topic)
    if wanted.message_id:
        message = backend.messages.by_id(wanted.message_id, wanted.topic or None)
        yield from [] if message is None else [message]
    elif wanted.keys:
        yield from _with_keys(backend, wanted)
    elif wanted.place is not None:
        yield from _from_place(backend, wanted.topic, *wanted.place)
    else:
        topics = [wanted.topic] if wanted.topic else filter(is_of_application, backend.topics.names())
        rows = [_backwards(backend, queue, wanted) for topic in topics for queue in backend.topics.queues(topic)]
        yield from heapq.merge(*rows, key=_order)


def _with_keys(backend: Backend, wanted: Search) -> Iterator[ReceivedMessage]:
    """Yield what has a key or an id. A copy of a message is left out beside the message itself."""
    topics = [wanted.topic] if wanted.topic else [each for each in backend.topics.names() if _is_searched(each)]
    since, until = wanted.since_ms or 0, _END_OF_TIME if wanted.until_ms is None else wanted.until_ms
    latest = min(until, wanted.below.stored_ms) if wanted.below else until
    most, rows, asked = wanted.limit + 1, list[ReceivedMessage](), dict[tuple[str, str], list[ReceivedMessage]]()
    full = [(topic, key) for key in wanted.keys for topic in backend.messages.topics_with(key, topics)]
    while True:
        asked |= {(topic, key): backend.messages.by_key(topic, key, since, latest, most) for topic, key in full}
        full = [each for each in full if len(asked[each]) == most]
        # What a full row ends with may have others of its ms behind it, which stand above it on the page.
        whole_after = max((asked[each][-1].store_timestamp for each in full), default=-1)
        rows = [
            each
            for row in asked.values()
            for each in row
            if each.store_timestamp > whole_after and _is_below(each, wanted.below)
        ]
        if len(rows) > wanted.limit or whole_after < 0 or most > _MOST_OF_A_KEY:
            break
        most *= 4
    first = {each.message_id for each in rows if is_of_application(each.topic)}
    rows += [found for key in wanted.keys if wanted.below is None and not first and (found := _by_id(backend, key))]
    kept = {Below.of(each): each for each in rows
            if wanted.topic or is_of_application(each.topic) or each.message_id not in first}  # fmt: skip
    yield from sorted(kept.values(), key=_order)


def _by_id(backend: Backend, text: str) -> ReceivedMessage | None:
    with contextlib.suppress(ValueError):
        return backend.messages.by_id(text)
    return None


def _is_searched(topic: str) -> bool:
    return is_of_application(topic) or has_copies(topic) or topic in (TIMER_TOPIC, SCHEDULE_TOPIC)


def _from_place(backend: Backend, topic: str, queue_id: int, queue_offset: int) -> Iterator[ReceivedMessage]:
    for queue in backend.topics.queues(topic):
        if queue.queue_id == queue_id:
            low, high = backend.queues.span(queue)
            yield from _read(backend, queue, range(max(low, queue_offset), high))


def _backwards(backend: Backend, queue: MessageQueue, wanted: Search) -> Iterator[ReceivedMessage]:
    low, high = backend.queues.span(queue)
    until_ms = wanted.until_ms
    if wanted.below is not None:
        until_ms = wanted.below.stored_ms if until_ms is None else min(until_ms, wanted.below.stored_ms)
    if wanted.since_ms is not None:
        low = max(low, backend.queues.offset_by_time(queue, wanted.since_ms))
    if until_ms is not None:
        high = min(high, backend.queues.offset_by_time(queue, until_ms + 1))
    for message in _read(backend, queue, range(high - 1, low - 1, -1)):
        if _is_below(message, wanted.below):
            yield message


def _order(message: ReceivedMessage) -> tuple[int, str, int, int]:
    return -message.store_timestamp, message.topic, message.queue_id, -message.queue_offset


def _is_below(message: ReceivedMessage, below: Below | None) -> bool:
    if below is None:
        return True
    return _order(message) > (-below.stored_ms, below.topic, below.queue_id, -below.offset)


def _read(backend: Backend, queue: MessageQueue, offsets: Iterable[int]) -> Iterator[ReceivedMessage]:
    for offset in offsets:
        with contextlib.suppress(MessageExpired, StoreCorrupt):
            yield backend.queues.message_at(queue, offset)
