"""How many faults a run plants: all, or a share of them."""

from __future__ import annotations

import random

import pytest

from tests.support.sweeps import share_of


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the share of the faults that the seed of the run chooses; each costs half a minute."""
    planted = sorted(
        (item for item in items if item.name.startswith("test_a_planted_fault_is_noticed")),
        key=lambda item: item.nodeid,
    )
    taken = {*random.Random(config.option.random_seed).sample(planted, share_of(len(planted)))}
    left_out = [item for item in planted if item not in taken]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
