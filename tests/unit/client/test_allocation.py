"""Who gets which queues: RocketMQ's answers as data, and what holds for every input."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.allocation import (
    Strategy,
    allocate,
    configured,
    hashed,
    machine_room,
    name_of,
    nearby,
    unallocated,
)
from rmqclient.errors import AllocationError
from rmqclient.message import MessageQueue

VECTORS: dict[str, list[tuple[int, int, list[list[int]]]]] = {  # queues, members, queue ids of each member
    "averaged": [  # AllocateMessageQueueAveragelyTest, and the real class of 4.9.8
        (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (4, 6, [[0], [1], [2], [3], [], []]),
        (4, 1, [[0, 1, 2, 3]]),
        (3, 3, [[0], [1], [2]]),
        (1, 2, [[0], []]),
    ],
    "circle": [  # the real AllocateMessageQueueAveragelyByCircle of 4.9.8
        (10, 4, [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]),
    ],
    "hash": [  # the real AllocateMessageQueueConsistentHash of 4.9.8
        (10, 4, [[1, 6, 7, 8, 9], [0, 3], [2, 5], [4]]),
        (4, 6, [[], [0, 3], [], [], [], [1, 2]]),
        (8, 3, [[1, 6, 7], [0, 3, 4], [2, 5]]),
        (3, 3, [[1], [0], [2]]),
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


def queues_of(topic: str, count: int, broker_name: str = "") -> list[MessageQueue]:
    return [MessageQueue(topic, queue_id, broker_name) for queue_id in range(count)]


@pytest.mark.parametrize(
    ("strategy", "queue_count", "member_count", "expected"),
    [(strategy, *vector) for strategy, vectors in VECTORS.items() for vector in vectors],
)
def test_rocketmq_gives_the_same(strategy: str, queue_count: int, member_count: int, expected: list[list[int]]) -> None:
    ids = [f"CID_PREFIX{number}" for number in range(member_count)]
    allocation = allocate(strategy, ids, queues_of("topic", queue_count, "brokerName"))
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


EVEN = ("averaged", "circle", "sticky")


def room_of(thing: str | MessageQueue) -> str:
    """Every second member and queue is in the north."""
    number = thing.queue_id if isinstance(thing, MessageQueue) else len(thing)
    return "north" if number % 2 else "south"


@pytest.mark.parametrize("strategy", [*EVEN, "hash", nearby(room_of)], ids=name_of)
@given(ids=members, given_queues=queues, seed=st.randoms(use_true_random=False))
def test_every_queue_goes_to_one_member_whatever_the_order_of_the_input(
    strategy: str | Strategy, ids: list[str], given_queues: list[MessageQueue], seed: random.Random
) -> None:
    allocation = allocate(strategy, ids, given_queues)

    # Every member has an answer; together they hold every queue once
    assert set(allocation) == set(ids)
    held = [queue for part in allocation.values() for queue in part]
    assert sorted(held) == sorted(given_queues)

    # Where the strategy promises it the parts differ by one queue at most
    sizes = [len(part) for part in allocation.values()]
    assert strategy not in EVEN or max(sizes) - min(sizes) <= 1

    # And another member, who sees the same things in another order, computes the same
    shuffled_ids, shuffled_queues = ids.copy(), given_queues.copy()
    seed.shuffle(shuffled_ids)
    seed.shuffle(shuffled_queues)
    assert allocate(strategy, shuffled_ids, shuffled_queues) == allocation


# --- circle ------------------------------------------------------------------------------------------------------


@given(members, queues)
def test_circle_follows_the_formula_of_rocketmq(ids: list[str], given_queues: list[MessageQueue]) -> None:
    allocation = allocate("circle", ids, given_queues)
    in_order = sorted(given_queues, key=lambda queue: queue.sort_key)
    for index, member in enumerate(sorted(ids, key=lambda text: text.encode("utf-16-be"))):
        assert allocation[member] == [queue for place, queue in enumerate(in_order) if place % len(ids) == index]


# --- consistent hash ---------------------------------------------------------------------------------------------


@given(st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=12, unique=True), queues)
def test_by_hash_only_the_queues_of_a_member_that_goes_change_hands(
    ids: list[str], given_queues: list[MessageQueue]
) -> None:
    before, after = allocate("hash", ids, given_queues), allocate("hash", ids[1:], given_queues)
    for member in ids[1:]:
        assert set(before[member]) <= set(after[member])


def test_more_virtual_nodes_make_the_shares_by_hash_more_even() -> None:
    ids = [f"CID_PREFIX{number}" for number in range(10)]

    def largest(virtual_nodes: int) -> int:
        allocation = allocate(hashed(virtual_nodes), ids, queues_of("topic", 1_000))
        return max(map(len, allocation.values()))

    assert largest(1) > largest(10) > largest(500)
    with pytest.raises(ValueError, match="virtual_nodes=0"):
        hashed(0)


# --- config ------------------------------------------------------------------------------------------------------


def test_config_gives_what_is_written_down() -> None:
    first, second, third = queues_of("t", 3)
    assert allocate(configured({"a": [third, first]}), ["b", "a", "c"], [first, second, third]) == {
        "a": [third, first],
        "b": [],
        "c": [],
    }
    assert allocate(configured({"a": [third, first]}), ["a"], [first]) == {"a": [first]}, "what does not exist waits"


def test_a_queue_that_is_configured_for_two_members_is_refused() -> None:
    (queue,) = queues_of("t", 1)
    with pytest.raises(ValueError, match="for 'a' and for 'b'"):
        configured({"a": [queue], "b": [queue]})


# --- machine rooms -----------------------------------------------------------------------------------------------


def test_the_rest_of_a_machine_room_goes_to_the_first_members_from_the_end() -> None:
    ids = ["a", "b", "c"]
    near, far = queues_of("t", 8, "r1@b"), queues_of("t", 3, "r2@b")
    allocation = allocate(machine_room(["r1"]), ids, near + far)
    assert allocation == {"a": [*near[0:2], near[6]], "b": [*near[2:4], near[7]], "c": near[4:6]}


@given(
    members,
    st.lists(
        st.builds(
            MessageQueue,
            st.just("t"),
            st.integers(0, 40),
            st.sampled_from(["r1@a", "r1@a@", "r2@b", "r3@c", "r1", "@a", "r1@", "r1@a@b", "r1@@a", ""]),
        ),
        min_size=1,
        max_size=60,
        unique=True,
    ),
)
def test_machine_room_follows_the_formula_of_rocketmq(ids: list[str], given_queues: list[MessageQueue]) -> None:
    allocation = allocate(machine_room(["r1", "r3"]), ids, given_queues)
    in_order = sorted(given_queues, key=lambda queue: queue.sort_key)
    for index, member in enumerate(sorted(ids, key=lambda text: text.encode("utf-16-be"))):
        assert allocation[member] == machine_room_as_in_java(in_order, len(ids), index, {"r1", "r3"})


def machine_room_as_in_java(
    queues: Sequence[MessageQueue], member_count: int, index: int, rooms: set[str]
) -> list[MessageQueue]:
    """AllocateMessageQueueByMachineRoom.allocate, line by line."""
    premium = []
    for queue in queues:
        parts = queue.broker_name.rstrip("@").split("@") if queue.broker_name.rstrip("@") else []
        if len(parts) == 2 and parts[0] in rooms:
            premium.append(queue)
    mod, rem = len(premium) // member_count, len(premium) % member_count
    result = [premium[number] for number in range(mod * index, mod * (index + 1))]
    if rem > index:
        result.append(premium[index + mod * member_count])
    return result


def test_members_get_the_queues_of_their_own_room_and_share_those_of_empty_rooms() -> None:
    # AllocateMachineRoomNearby, with the uneven shares of issue 2443: room by room from the first member on
    ids = ["r1-a", "r1-b", "r2-a"]
    rooms = {name: queues_of("t", 2, f"{name}-broker") for name in ("r1", "r2", "r3", "r4")}
    found = allocate(nearby(room_before_dash), ids, [queue for part in rooms.values() for queue in part])
    assert found == {
        "r1-a": [rooms["r1"][0], rooms["r3"][0], rooms["r4"][0]],
        "r1-b": [rooms["r1"][1], rooms["r3"][1], rooms["r4"][1]],
        "r2-a": rooms["r2"],
    }


def test_the_inner_strategy_of_nearby_can_be_chosen() -> None:
    ids, given_queues = ["r1-a", "r1-b"], queues_of("t", 4, "r1-broker")
    assert allocate(nearby(room_before_dash, "circle"), ids, given_queues) == allocate("circle", ids, given_queues)
    with pytest.raises(ValueError, match="inner='sticky': give a function, or one of averaged, circle, hash"):
        nearby(room_before_dash, "sticky")


def test_a_thing_without_a_room_is_refused() -> None:
    with pytest.raises(AllocationError, match="gives the room '' for 'a'"):
        allocate(nearby(lambda _: ""), ["a"], queues_of("t", 1))


def room_before_dash(thing: str | MessageQueue) -> str:
    return (thing.broker_name if isinstance(thing, MessageQueue) else thing).split("-")[0]


# --- sticky ------------------------------------------------------------------------------------------------------

owners = st.lists(st.sampled_from(["a", "b", "c", "d", "e", "gone", None]), min_size=1, max_size=40)


@given(st.sets(st.sampled_from("abcde"), min_size=1), owners)
def test_sticky_is_balanced_and_moves_no_more_than_necessary(ids: set[str], owner_of: list[str | None]) -> None:
    given_queues = queues_of("t", len(owner_of))
    current = {queue: owner for queue, owner in zip(given_queues, owner_of, strict=True) if owner}
    allocation = allocate("sticky", sorted(ids), given_queues, current=current)

    sizes = [len(part) for part in allocation.values()]
    assert sorted(queue for part in allocation.values() for queue in part) == given_queues
    assert max(sizes) - min(sizes) <= 1

    moved = sum(current.get(queue) in ids - {member} for member, part in allocation.items() for queue in part)
    share, left_over = divmod(len(given_queues), len(ids))
    had = [owner_of.count(member) for member in ids]
    too_many = sum(max(0, count - share) for count in had)
    assert moved == too_many - min(left_over, sum(count > share for count in had))


@given(st.sets(st.sampled_from("abcde"), min_size=1), st.integers(1, 40))
def test_sticky_leaves_what_it_made_alone(ids: set[str], queue_count: int) -> None:
    first = allocate("sticky", sorted(ids), queues_of("t", queue_count))
    current = {queue: member for member, part in first.items() for queue in part}
    assert allocate("sticky", sorted(ids), queues_of("t", queue_count), current=current) == first


# --- a function of one's own -------------------------------------------------------------------------------------


def last_takes_all(members: Sequence[str], queues: Sequence[MessageQueue]) -> dict[str, list[MessageQueue]]:
    return {members[-1]: list(queues)}


def test_a_function_of_ones_own_gets_sorted_members_and_queues() -> None:
    found = allocate(last_takes_all, ["b", "c", "a"], queues_of("t", 2)[::-1])
    assert found == {"a": [], "b": [], "c": queues_of("t", 2)}


def test_queues_that_a_function_of_ones_own_gives_to_nobody_are_known() -> None:
    found = allocate(lambda members, queues: {members[0]: [queues[0]]}, ["a"], queues_of("t", 3))
    assert unallocated(found, queues_of("t", 3)) == queues_of("t", 3)[1:]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"z": []}, "'z', which is not a member"),
        ({"a": [MessageQueue("t", 9)]}, "which does not exist"),
        ({"a": queues_of("t", 1), "b": queues_of("t", 1)}, "queue 0 of t twice, to 'a' and to 'b'"),
        ({"a": queues_of("t", 1) * 2}, "queue 0 of t twice, to 'a' and to 'a'"),
        (None, "raised AttributeError"),
        ({"a": 3}, "raised TypeError"),
    ],
    ids=["unknown member", "unknown queue", "two members", "twice", "no mapping", "no queues"],
)
def test_a_wrong_answer_of_a_function_of_ones_own_is_an_error_that_names_it(answer: Any, said: str) -> None:
    with pytest.raises(AllocationError, match=said) as raised:
        allocate(lambda *_: answer, ["a", "b"], queues_of("t", 2))
    assert "test_allocation:" in str(raised.value)


def test_strategies_are_compared_by_name_and_settings() -> None:
    strategies: list[str | Strategy] = [
        "averaged",
        hashed(),
        hashed(100),
        machine_room({"r2", "r1"}),
        configured({"b": queues_of("t", 1), "a": []}),
        nearby(room_before_dash, "circle"),
        last_takes_all,
    ]
    names = [name_of(each) for each in strategies]
    assert names == [
        "averaged",
        "hash",
        "hash(100)",
        "machine_room(r1, r2)",
        "config(a: ; b: t:0)",
        f"machine_room_nearby({__name__}:room_before_dash, circle)",
        f"{__name__}:last_takes_all",
    ]


@pytest.mark.parametrize("strategy", ["config", "machine_room", "machine_room_nearby"])
def test_a_strategy_without_its_setting_says_what_it_needs(strategy: str) -> None:
    with pytest.raises(ValueError, match=f"'{strategy}' needs settings"):
        allocate(strategy, ["a"], queues_of("t", 1))


# --- order and bad input -----------------------------------------------------------------------------------------


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
    with pytest.raises(ValueError, match=r"no allocation strategy 'random': choose one of 'averaged', 'circle'"):
        allocate("random", ["a"], queues_of("t", 1))


@pytest.mark.parametrize(
    ("ids", "given_queues"),
    [([], queues_of("t", 1)), (["a"], []), ([], []), (["a", ""], queues_of("t", 1))],
    ids=["no member", "no queue", "nothing", "empty client id"],
)
def test_empty_input_is_refused(ids: list[str], given_queues: list[MessageQueue]) -> None:
    with pytest.raises(ValueError):
        allocate("averaged", ids, given_queues)
