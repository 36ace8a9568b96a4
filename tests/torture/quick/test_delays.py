"""A few thousand delayed messages beside random kills; and the judge, with histories made by hand."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.torture.kills import delays
from tests.torture.kills.delay_history import Copy, Fate, Handled, fates_of, handled_of, histogram, judge, percentile

MESSAGE = (0, 7)
COPY = Copy(MESSAGE, due_ms=1_000, born_ms=500, stored_ms=1_001)
CALL = Handled(9, 1_002, MESSAGE, 1_000)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.guarantee("G37")
@pytest.mark.sweep
def test_random_kills_leave_each_delayed_message_its_one_delivery_in_time(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    result = delays.run(seed, 3, tmp_path)
    print(result)
    assert result.problems == []
    assert result.figures["delivered"]


def problems(
    *,
    fate: Fate | None = Fate.SENT,
    copies: tuple[Copy, ...] = (COPY,),
    handled: tuple[Handled, ...] = (CALL,),
    killed: tuple[int, ...] = (),
    in_flight: bool = False,
) -> list[str]:
    """Return what the judge finds wrong, without the numbers."""
    fates = {} if fate is None else {MESSAGE: fate}
    found = judge(fates, {MESSAGE} if in_flight else set(), list(copies), list(handled), set(killed), [])
    return [problem.partition(":")[0] for problem in found.problems]


def test_a_message_that_came_in_time_is_right() -> None:
    assert problems() == []
    assert problems(fate=Fate.NOT_CANCELLED) == []
    assert problems(fate=Fate.PERHAPS_CANCELLED) == []
    assert problems(fate=Fate.PERHAPS_CANCELLED, copies=(), handled=()) == []
    assert problems(fate=Fate.CANCELLED, copies=(), handled=()) == []
    assert problems(fate=None, in_flight=True) == []
    assert problems(fate=None, in_flight=True, copies=(), handled=()) == []


def test_the_judge_sees_each_thing_that_may_be_wrong() -> None:
    assert problems(copies=(COPY._replace(stored_ms=999),)) == ["stored before it was due"]
    assert problems(handled=(CALL._replace(at_ms=999),)) == ["handled before it was due"]
    assert problems(copies=(), handled=()) == ["lost"]
    assert problems(fate=Fate.NOT_CANCELLED, copies=(), handled=()) == ["lost"]
    assert problems(copies=(COPY, COPY)) == ["delivered twice"]
    assert problems(fate=None) == ["delivered, and never sent"]
    assert problems(fate=Fate.CANCELLED) == ["delivered, and cancelled"]
    assert problems(handled=()) == ["never handled"]
    assert problems(copies=(), fate=Fate.CANCELLED) == ["handled, and never delivered"]


def test_only_what_a_killed_consumer_had_in_hand_may_be_handled_twice() -> None:
    again = CALL._replace(consumer=10)
    assert problems(handled=(CALL, again)) == ["handled twice, and not in flight at a kill"]
    assert problems(handled=(CALL, again), killed=(9,)) == []
    other = Handled(9, 1_003, (0, 8), 1_000)
    assert "handled twice, and not in flight at a kill" in problems(handled=(CALL, other, again), killed=(9,))


def test_what_processes_said_is_read() -> None:
    said = ["s 0 1000", "s 1 1000", "C 1", "s 2 1000", "C 2", "c 2 1", "C 0", "c 0 0"]
    assert fates_of(4, said) == {
        (4, 0): Fate.NOT_CANCELLED,
        (4, 1): Fate.PERHAPS_CANCELLED,
        (4, 2): Fate.CANCELLED,
    }
    assert handled_of(9, ["1002 0 7 1000"]) == [CALL]


def test_lateness_is_counted_beside_a_kill_and_on_quiet() -> None:
    late = [COPY._replace(due_ms=due_ms, stored_ms=due_ms + 3) for due_ms in (1_000, 5_000, 7_999, 8_000)]
    found = judge({}, {MESSAGE}, late, [], set(), [2_000, 5_000], sent_ms=1_500)
    assert (found.quiet, found.while_sending, found.beside_kills) == (Counter({3: 1}), Counter({3: 1}), Counter({3: 2}))
    assert found.most_pending == 4
    assert histogram(Counter({0: 50, 1: 25, 7: 24, 20_000: 1})) == "<= 1 ms 75.00%, <= 10 ms 24.00%, > 10,000 ms 1.00%"
    assert [percentile(Counter({0: 50, 1: 25, 7: 25}), share) for share in (0.5, 0.75, 0.99, 1.0)] == [0, 1, 7, 7]
