"""The reader: what it yields of a topic, and when it ends."""

from __future__ import annotations

import time

import pytest

from rmqclient import Producer
from rmqclient.consuming import reader as reader_module
from rmqclient.consuming.reader import Reader
from rmqclient.store import MessageStore, clock


def test_a_reader_that_follows_until_a_time_in_the_past_ends_at_once(store: MessageStore) -> None:
    with Producer(store) as producer:
        producer.send("orders", b"7")
    later_ms = clock.wall_ms() + 1
    while clock.wall_ms() <= later_ms:
        time.sleep(0.001)
    assert [each.body for each in Reader(store).tail("orders", start="earliest", until_ms=later_ms)] == [b"7"]


def test_a_reader_that_follows_ends_when_its_time_has_come(store: MessageStore) -> None:
    with Producer(store) as producer:
        producer.send("orders", b"7")
    until_ms = clock.wall_ms() + 200
    assert len(list(Reader(store).tail("orders", start="earliest", until_ms=until_ms))) == 1
    assert clock.wall_ms() >= until_ms


def test_a_queue_that_is_read_in_parts_loses_nothing_to_a_newer_message_of_another_one(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given more messages in a queue than are read at once, and then, behind a time, one in another queue
    monkeypatch.setattr(reader_module, "_READ_AT_ONCE", 2)
    with Producer(store) as producer:
        producer.create_topic("orders", 2)
        before = [producer.send("orders", b"%d" % number, sharding_key="a") for number in range(5)]
        until_ms = clock.wall_ms() + 1
        while clock.wall_ms() <= until_ms:
            time.sleep(0.001)
        keys = iter("bcdefgh")
        while producer.send("orders", b"late", sharding_key=next(keys)).queue == before[0].queue:
            pass

    # When what was stored before that time is read
    found = list(Reader(store).tail("orders", start="earliest", follow=False, until_ms=until_ms))

    # Then all of it is there, and nothing else
    assert [each.body for each in found] == [b"0", b"1", b"2", b"3", b"4"]
