"""Message queues stand in RocketMQ's order wherever members have to agree."""

from __future__ import annotations

import pickle
from itertools import permutations

from rmqclient import store
from rmqclient.message import MessageQueue


def test_a_queue_without_a_broker_has_an_empty_broker_name() -> None:
    assert MessageQueue("orders", 3) == ("orders", 3, "")


def test_the_client_and_the_store_mean_the_same_class() -> None:
    assert MessageQueue is store.MessageQueue


def test_the_order_is_topic_then_broker_name_as_text_then_queue_id_as_number() -> None:
    in_order = [
        MessageQueue("a", 9, "b-9"),
        MessageQueue("b", 2, "b-10"),
        MessageQueue("b", 10, "b-10"),
        MessageQueue("b", 0, "b-2"),
    ]
    for given in permutations(in_order):
        assert sorted(given, key=lambda queue: queue.sort_key) == in_order


def test_a_queue_is_the_same_key_in_another_process() -> None:
    queue = MessageQueue("orders", 3, "broker-a")
    assert {queue: "held"}[pickle.loads(pickle.dumps(queue))] == "held"
