"""Queue JSON: a value for each queue, as options and Spark's checkpoints have it.

::

    {"orders": {"0": 23, "1": 42}}                                       a store: topic, queue id
    {"orders": {"broker-a": {"0": 23}, "broker-b": {"0": 42}}}           a cluster: topic, broker name, queue id

A checkpoint of a store also has the identity of that store, under ``@store``, which no topic can be named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from rmqclient.arrow.ranges import Offsets
from rmqclient.store import MessageQueue

Document: TypeAlias = dict[str, Any]

STORE = "@store"

_QUEUE_ID = re.compile(r"\d{1,9}")


def to_json(offsets: Offsets, store: str | None = None) -> Document:
    """Return offsets as the JSON of a checkpoint, sorted, with the identity of their store if it is known."""
    found: Document = {} if store is None else {STORE: store}
    for queue in sorted(offsets):
        of_topic = found.setdefault(queue.topic, {})
        of_broker = of_topic.setdefault(queue.broker_name, {}) if queue.broker_name else of_topic
        of_broker[str(queue.queue_id)] = offsets[queue]
    return found


def from_json(document: Mapping[str, Any]) -> Offsets:
    """Return the offsets in the JSON of a checkpoint. Raises ValueError for invalid JSON."""
    found: Offsets = {}
    for topic, broker_name, numbers in by_broker(document):
        if not isinstance(numbers, dict):
            raise ValueError(f"{topic}: {str(numbers)[:100]} does not name queues")  # noqa: TRY004 - as below
        for queue_id, number in numbers.items():
            if not _QUEUE_ID.fullmatch(queue_id) or type(number) is not int:
                raise ValueError(f"{topic}: {queue_id}: {str(number)[:100]} is not a queue id and a number")
            found[MessageQueue(topic, int(queue_id), broker_name)] = number
    return found


def store_of(document: Mapping[str, Any]) -> str | None:
    """Return the identity of the offsets' store; None in JSON of older versions, which lack it."""
    found = document.get(STORE)
    return found if isinstance(found, str) else None


def by_broker(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield topic, broker name and the values by queue; the name is empty for a store."""
    for topic, inner in document.items():
        if topic == STORE:
            continue
        if isinstance(inner, dict) and inner and all(isinstance(each, dict | list) for each in inner.values()):
            for broker_name, numbers in inner.items():
                yield topic, broker_name, numbers
        else:
            yield topic, "", inner
