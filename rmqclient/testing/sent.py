"""Sent: which messages a topic has, those that wait for their time included, and which of them a test means."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from rmqclient.consuming.reader import Reader
from rmqclient.message import ReceivedMessage
from rmqclient.store import MessageStore
from rmqclient.store.errors import UnknownTopic
from rmqclient.store.waiting.schedule import DELAY_LEVELS, queue_of

Where: TypeAlias = Mapping[str, object] | Callable[[ReceivedMessage], object] | None
"""Fields of a JSON body with their values, or a function that tells whether a message is meant; None means any."""

_SHOWN = 5


def messages(store: MessageStore, topic: str) -> Iterator[ReceivedMessage]:
    """Yield the messages of a topic in the order in which they were stored, then those that wait for their time."""
    try:
        with Reader(store) as reader:
            yield from reader.tail(topic, start="earliest", follow=False)
    except UnknownTopic:
        pass
    for each in store.timer.pending():
        if each.topic == topic and (message := store.timer.message(each.queue_offset)) is not None:
            yield message
    yield from (each for each in _in_levels(store) if each.properties.get("REAL_TOPIC") == topic)


def matches(message: ReceivedMessage, where: Where, tags: str | None) -> bool:
    """Tell whether a message is meant."""
    if tags is not None and message.tags != tags:
        return False
    if isinstance(where, Mapping):
        return _has(_json(message), where)
    return where is None or bool(where(message))


def complaint(
    store: MessageStore, topic: str, where: Where, tags: str | None, found: list[ReceivedMessage], times: int | None
) -> str:
    """Return why an assertion failed: what was looked for, and what is there."""
    wanted = ", ".join(
        [f"topic {topic!r}", *([f"tag {tags!r}"] if tags else []), *([f"{_shown(where)}"] if where else [])]
    )
    head = f"{len(found)} messages match, not {'at least one' if times is None else times}: {wanted}"
    there = list(messages(store, topic))
    if not there:
        return f"{head}\nnothing was sent to {topic!r}; topics with messages: {', '.join(_used(store)) or 'none'}"
    lines = [f"  {each.tags or '-'}  {each.body[:200]!r}" for each in there[:_SHOWN]]
    lines += [f"  and {len(there) - _SHOWN} more"] if len(there) > _SHOWN else []
    return "\n".join([head, f"sent to {topic!r}, {len(there)} altogether:", *lines])


def _in_levels(store: MessageStore) -> Iterator[ReceivedMessage]:
    for level in DELAY_LEVELS:
        queue = queue_of(level)
        try:
            end = store.topics.max_offset(queue)
        except UnknownTopic:
            continue
        yield from (store.messages.at(queue, offset) for offset in range(store.schedule.next_offset(level), end))


def _used(store: MessageStore) -> list[str]:
    topics = store.topics
    return [name for name in topics.topics() if any(topics.max_offset(queue) for queue in topics.queues(name))]


def _json(message: ReceivedMessage) -> object:
    try:
        return json.loads(message.body)
    except ValueError:
        return None


def _has(body: object, where: Mapping[str, object]) -> bool:
    """Tell whether a JSON object has these fields; objects in it may have more, too."""
    if not isinstance(body, dict):
        return False
    return all(
        name in body and (_has(body[name], value) if isinstance(value, Mapping) else body[name] == value)
        for name, value in where.items()
    )


def _shown(where: object) -> str:
    return json.dumps(dict(where), default=repr) if isinstance(where, Mapping) else repr(where)
