"""A Java consumer, a Go consumer and a local worker share a group over one store, and are killed at random.

``python -m tests.torture serve-languages`` does the same with 1,000,000 messages.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.interop.rocketmq import BROKER_4_9_7, why_not
from tests.interop.serve.members import Handled
from tests.interop.serve.one_group import Kill, Outcome, share_and_kill

REASON = why_not(BROKER_4_9_7) or ("" if shutil.which("go") else "there is no Go")


@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_three_languages_share_a_group_while_members_are_killed(tmp_path: Path, report: list[str]) -> None:
    found = share_and_kill(seed=7, messages=20_000, per_second=2_000, scratch=tmp_path)
    report.append(f"one group: {found.figures()}")
    assert found.server_runs
    assert found.lost == []
    assert found.unexplained == []
    assert found.at_once == []


def handled(at: float, member: int, number: int) -> Handled:
    return Handled(at, member, f"m{member}", number, queue_id=0, queue_offset=number)


def test_a_loss_a_repeat_and_two_owners_are_found_out() -> None:
    lines = [handled(0.0, 0, 0), handled(0.1, 1, 1), handled(0.2, 0, 1)]
    found = Outcome(3, ("m0", "m1"), lines, kills=[], server_runs=True)
    assert found.lost == [2]
    assert found.unexplained == [(lines[1], lines[2])]
    assert found.at_once == [(lines[1], lines[2])]


@pytest.mark.parametrize("kill", [Kill(0.15, 0.3), Kill(-5.0, -1.0)], ids=["its member died", "its queue moved"])
def test_a_kill_explains_what_came_again(kill: Kill) -> None:
    lines = [handled(0.0, 0, 0), handled(0.1, 1, 1), handled(0.2, 0, 1)]
    found = Outcome(2, ("m0", "m1"), lines, [kill], server_runs=True)
    assert (found.lost, found.unexplained) == ([], [])
    assert found.figures()["handled again"] == 1


def test_a_move_does_not_explain_what_had_long_been_handled() -> None:
    lines = [handled(0.0, 1, 0), handled(20.0, 0, 0)]
    assert Outcome(1, ("m0", "m1"), lines, [Kill(17.0, 19.0)], server_runs=True).unexplained == [(lines[0], lines[1])]
