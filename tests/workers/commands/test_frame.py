"""A frame of ``rmq top`` on terminals of every size."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from rmqclient.workers.commands.frame import Wish, lines_of
from rmqclient.workers.console.layout import width_of


def found(groups: int, workers: int) -> dict[str, Any]:
    numbers = {"in_s": 12.0, "out_s": 3.0, "lag": 1_234_567, "oldest_s": 412.0, "in_flight": 7, "retries": 1}
    group = {**numbers, "waiting": 2, "dead_letters": 3, "state": "behind retention: 12 lost"}
    worker = {"pid": 4_711, "beat_age_s": 0.2, "resident_mib": 61.0, "restarts": 1, "state": "hung in orders 2:7731"}
    return {
        "store": "/srv/a-directory-with-a-long-name/store",
        "disk_used_ratio": 0.5,
        "poisoned": 5,
        "housekeeper": True,
        "in_s": 12.0,
        "out_s": 3.0,
        "in_flight": 7,
        "waiting": 2,
        "groups": [{**group, "group": f"a-group-with-a-long-name-{number}"} for number in range(groups)],
        "workers": [{**worker, "slot": number, "name": f"worker-{number}"} for number in range(workers)],
    }


@pytest.mark.parametrize("colours", [False, True])
@pytest.mark.parametrize("shows", ["g", "w", "gw"])
@pytest.mark.parametrize(("groups", "workers"), [(0, 0), (1, 1), (40, 20)])
def test_a_frame_has_at_most_the_columns_and_the_lines_of_the_terminal(
    groups: int, workers: int, shows: str, colours: bool
) -> None:
    for columns in (1, 3, 20, 45, 80, 110, 200):
        for lines in range(1, 30):
            drawn = lines_of(found(groups, workers), Wish(shows, colours=colours), os.terminal_size((columns, lines)))
            assert len(drawn) <= max(0, lines - 1), "one is for the note"
            assert max((width_of(re.sub(r"\x1b\[[0-9]*m", "", each)) for each in drawn), default=0) <= columns
