"""Children that append: singly, in batches, flushed, indexed, once by a key, between openings and closings."""

from __future__ import annotations

import itertools
from dataclasses import replace

from rmqclient import Producer
from rmqclient.store import Durability, Message, open_store
from tests.crash.processes.order import Note, Order
from tests.support.stores import SMALL, SPAN, TOPIC, appender_of, body_of, grant_of

PASSERS_BY = "passers-by"
"""A group that takes one message in each round of :func:`open_and_close`."""


def append(order: Order, note: Note) -> None:
    """Append batches of consecutive messages; note the number after the last one of each."""
    store = open_store(order.root, housekeeping=False)
    appender = appender_of(store)
    order.arm()
    for first in itertools.count(0, order.batch):
        messages = [Message(TOPIC, body_of(first + step, order.body_bytes)) for step in range(order.batch)]
        if order.batch == 1:
            appender.append(messages[0])
        else:
            appender.append_batch(messages)
        note(first + order.batch)


def append_durably(order: Order, note: Note) -> None:
    """Append with SYNC durability; note the number after each message and how far the log was flushed."""
    store = open_store(order.root, replace(SMALL, durability=Durability.SYNC), housekeeping=False)
    appender = appender_of(store)
    order.arm()
    for number in itertools.count():
        result = appender.append(Message(TOPIC, body_of(number, order.body_bytes)))
        store.flusher.wait_until_flushed(result.commit_log_end)
        note(f"{number + 1} {store.state.flushed_to - result.commit_log_end}")


def index(order: Order, note: Note) -> None:
    """Append messages with two keys and index them, one by one; note the number after each message that is indexed."""
    store = open_store(order.root, housekeeping=False)
    appender = appender_of(store)
    order.arm()
    for number in itertools.count():
        appender.append(Message(TOPIC, body_of(number, order.body_bytes), keys=keys_of(number)))
        store.index.catch_up()
        note(number + 1)


def keys_of(number: int) -> list[str]:
    """Return the keys of a message: one of its own, and one that it shares with others."""
    return [f"key{number}", f"shared{number % 3}"]


def open_and_close(order: Order, note: Note) -> None:
    """Open the store, append one message, take one, close it, again and again; note the number after each append."""
    order.arm()
    for number in range(order.rounds) if order.rounds else itertools.count():
        with open_store(order.root, SMALL, housekeeping=False) as store:
            appender_of(store).append(Message(TOPIC, body_of(number, order.body_bytes)))
            note(number + 1)
            grant = grant_of(store, PASSERS_BY)  # so that closing has an offset to write
            assert all(grant.acknowledge(message) for message in grant.take(1, SPAN))


def send_once(order: Order, note: Note) -> None:
    """Send so many messages by their numbers as keys; note each number, if it was a duplicate, and where it stands."""
    with open_store(order.root, housekeeping=False) as store, Producer(store) as producer:
        order.arm()
        for number in range(order.rounds):
            sent = producer.send_once(Message(TOPIC, body_of(number, order.body_bytes)), f"key-{number}")
            note(f"{number} {int(sent.is_duplicate)} {sent.commit_log_offset}")
