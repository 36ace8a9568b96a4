"""A group of a hundred members on ten brokers, simulated with the real rebalance: it settles after each change."""

from __future__ import annotations

import pytest

from benchmarks.scaling.scenarios import Group, Outcome

MEMBERS = 100
QUEUES = 500


@pytest.mark.parametrize("strategy", ["averaged", "circle", "hash"])
def test_every_queue_has_an_owner_again_after_each_change(strategy: str) -> None:
    group = Group(10, MEMBERS, QUEUES, strategy, seed=7)
    started = group.start(waves=3)
    assert (started.unowned, started.moved) == (0, 0)
    for outcome in (group.join(), group.stop(), group.die()):
        assert outcome.unowned == 0, outcome
        assert outcome.settled_s < 2, outcome
        assert questions(outcome) < 12 * MEMBERS, outcome
    restarted, lost = group.restart(), group.lose_broker()
    assert (restarted.unowned, lost.unowned) == (0, 0)
    assert lost.settled_s < 40, "routes are 30 s old at most"


def test_a_hash_ring_moves_few_queues_where_the_averaged_strategy_moves_many() -> None:
    moved = {}
    for strategy in ("averaged", "hash"):
        group = Group(10, MEMBERS, QUEUES, strategy, seed=7)
        group.start(waves=1)
        moved[strategy] = group.die().moved
    assert moved["hash"] <= 3 * QUEUES // MEMBERS < moved["averaged"]


def questions(outcome: Outcome) -> int:
    """Return how often members asked who is in the group; six of them in two minutes are their own looks."""
    return outcome.asked["who is in the group"]
