"""Who gets which queues: RocketMQ's answers as data, and what holds for every input."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.allocation import STRATEGIES, allocate
from rmqclient.message_queue import MessageQueue

VECTORS: dict[str, list[tuple[int, int, list[list[int]]]]] = {
    "averaged": [  # AllocateMessageQueueAveragelyTest: queues, members, queue ids of each member
        (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (4, 6, [[0], [1], [2], [3], [], []]),
        (4, 1, [[0, 1, 2, 3]]),
        (3, 3, [[0], [1], [2]]),
        (1, 2, [[0], []]),
    ],
}

members = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=12, unique=True)
queues = st.lists(
    st.builds(
        MessageQueue, st.sampled_from(["orders", "refunds"]), st.integers(0, 40), st.sampled_from(["", "b-2", "b-10"])
    ),
    min_size=1,
    max_size=60,
    unique=True,
)


def queues_of(topic: str, count: int) -> list[MessageQueue]:
    return [MessageQueue(topic, queue_id) for queue_id in range(count)]


def test_every_strategy_has_vectors() -> None:
    assert set(VECTORS) == set(STRATEGIES)


@pytest.mark.parametrize(
    ("strategy", "queue_count", "member_count", "expected"),
    [(strategy, *vector) for strategy, vectors in VECTORS.items() for vector in vectors],
)
def test_rocketmq_gives_the_same(strategy: str, queue_count: int, member_count: int, expected: list[list[int]]) -> None:
    ids = [f"CID_PREFIX{number}" for number in range(member_count)]
    allocation = allocate(strategy, ids, queues_of("topic", queue_count))
    assert [[queue.queue_id for queue in allocation[member]] for member in ids] == expected


@given(members, queues)
def test_averaged_follows_the_formula_of_rocketmq(ids: list[str], given_queues: list[MessageQueue]) -> None:
    allocation = allocate("averaged", ids, given_queues)
    in_order = sorted(given_queues, key=lambda queue: queue.sort_key)
    for index, member in enumerate(sorted(ids, key=lambda text: text.encode("utf-16-be"))):
        assert allocation[member] == averaged_as_in_java(in_order, len(ids), index)


def averaged_as_in_java(queues: Sequence[MessageQueue], member_count: int, index: int) -> list[MessageQueue]:
    """AllocateMessageQueueAveragely.allocate, line by line."""
    left_over = len(queues) % member_count
    if len(queues) <= member_count:
        average_size = 1
    elif left_over > 0 and index < left_over:
        average_size = len(queues) // member_count + 1
    else:
        average_size = len(queues) // member_count
    start = index * average_size if left_over > 0 and index < left_over else index * average_size + left_over
    count = min(average_size, len(queues) - start)
    return [queues[(start + number) % len(queues)] for number in range(count)]


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(ids=members, given_queues=queues, seed=st.randoms(use_true_random=False))
def test_every_queue_goes_to_one_member_evenly_whatever_the_order_of_the_input(
    strategy: str, ids: list[str], given_queues: list[MessageQueue], seed: random.Random
) -> None:
    allocation = allocate(strategy, ids, given_queues)

    # Every member has an answer; together they hold every queue once
    assert set(allocation) == set(ids)
    held = [queue for part in allocation.values() for queue in part]
    assert sorted(held) == sorted(given_queues)

    # The parts differ by one queue at most
    sizes = [len(part) for part in allocation.values()]
    assert max(sizes) - min(sizes) <= 1

    # And another member, who sees the same things in another order, computes the same
    shuffled_ids, shuffled_queues = ids.copy(), given_queues.copy()
    seed.shuffle(shuffled_ids)
    seed.shuffle(shuffled_queues)
    assert allocate(strategy, shuffled_ids, shuffled_queues) == allocation


def test_broker_names_are_compared_as_text() -> None:
    found = allocate("averaged", ["a", "b"], [MessageQueue("t", 0, "b-2"), MessageQueue("t", 0, "b-10")])
    assert found == {"a": [MessageQueue("t", 0, "b-10")], "b": [MessageQueue("t", 0, "b-2")]}


def test_queue_ids_are_compared_as_numbers() -> None:
    found = allocate("averaged", ["a", "b"], [MessageQueue("t", 10), MessageQueue("t", 9)])
    assert found == {"a": [MessageQueue("t", 9)], "b": [MessageQueue("t", 10)]}


def test_members_are_compared_by_utf_16_units_as_java_does() -> None:
    beyond, private_use = "\U0001f600", "\ue000"
    assert beyond > private_use  # by code points, as Python compares
    assert allocate("averaged", [private_use, beyond], queues_of("t", 1))[beyond] == queues_of("t", 1)


def test_what_is_given_twice_counts_once() -> None:
    assert allocate("averaged", ["a", "b", "a"], queues_of("t", 2) * 2) == {
        "a": [MessageQueue("t", 0)],
        "b": [MessageQueue("t", 1)],
    }


def test_an_unknown_strategy_is_refused_with_the_names_of_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no allocation strategy 'random': there is 'averaged'"):
        allocate("random", ["a"], queues_of("t", 1))


@pytest.mark.parametrize(
    ("ids", "given_queues"),
    [([], queues_of("t", 1)), (["a"], []), ([], []), (["a", ""], queues_of("t", 1))],
    ids=["no member", "no queue", "nothing", "empty client id"],
)
def test_empty_input_is_refused(ids: list[str], given_queues: list[MessageQueue]) -> None:
    with pytest.raises(ValueError):
        allocate("averaged", ids, given_queues)
