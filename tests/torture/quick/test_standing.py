"""Some processes that stand still; and the judge, with histories made by hand."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.processes.child_campaign import TOPIC
from tests.torture.kills import standing
from tests.torture.kills.child_standing import LEASE_MS, RETRY_TOPIC, Place
from tests.torture.kills.standing_history import (
    SOON_MS,
    Call,
    Copy,
    Sent,
    Stand,
    calls_of,
    copies_of,
    judge,
    sent_of,
)

MESSAGE = (0, 7)
SENT = Sent("o", 10_000)
PLACE = Place(TOPIC, 1, 3)
COPY = Copy(PLACE, MESSAGE, due_ms=10_000, stored_ms=10_002)
CALL = Call(9, 1, PLACE, 10_005, 10_006, "e")
RETRY = Copy(Place(RETRY_TOPIC, 0, 0), MESSAGE, due_ms=10_000, stored_ms=11_010)
RETRIED = CALL._replace(place=RETRY.place, begin_ms=11_011, end_ms=11_012)
STAND = Stand(9, 4_711, "member", "idle", begin_ms=10_010, end_ms=14_000)


@pytest.mark.crash
@pytest.mark.guarantee("G91")
@pytest.mark.sweep
def test_processes_that_stand_still_hold_up_nobody_and_nothing_is_done_twice(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    result = standing.run(seed, 5, tmp_path)
    print(result)
    assert result.problems == []
    assert result.figures["stops"]


def problems(
    *,
    sent: Sent | None = SENT,
    copies: tuple[Copy, ...] = (COPY,),
    calls: tuple[Call, ...] = (CALL,),
    stands: tuple[Stand, ...] = (),
) -> list[str]:
    """Return what the judge finds wrong, without the numbers."""
    found = judge({} if sent is None else {MESSAGE: sent}, list(copies), list(calls), list(stands), 1.0)
    return [problem.partition(":")[0].rstrip("0123456789 ms") for problem in found.problems]


def test_a_message_that_came_in_time_is_right() -> None:
    assert problems() == []
    assert problems(sent=Sent("i", 10_000)) == []
    assert problems(sent=Sent("f", 10_000), copies=(), calls=()) == []
    assert problems(copies=(COPY, RETRY), calls=(CALL._replace(how="r"), RETRIED)) == []


def test_the_judge_sees_each_thing_that_may_be_wrong() -> None:
    other = COPY._replace(place=Place(TOPIC, 1, 4))
    assert problems(copies=(), calls=()) == ["lost"]
    assert problems(sent=Sent("f", 10_000)) == ["refused, and stored"]
    assert problems(sent=None) == ["stored, and never sent"]
    assert problems(copies=(COPY, other)) == ["stored twice"]
    assert problems(calls=()) == ["never handled"]
    assert problems(copies=(), sent=None) == ["handled, and not stored"]
    assert problems(copies=(COPY, RETRY, RETRY), calls=(CALL, RETRIED)) == ["sent back twice"]


def test_what_is_due_is_late_after_five_seconds_but_for_the_time_of_an_append_that_stood() -> None:
    late = COPY._replace(stored_ms=COPY.due_ms + SOON_MS + 1)
    handled = CALL._replace(begin_ms=late.stored_ms, end_ms=late.stored_ms)
    in_append = Stand(1, 4_712, "sender", "", 10_001, 14_900, holds_append=True)
    assert problems(copies=(late,), calls=(handled,)) == ["from due to stored took"]
    assert problems(copies=(late,), calls=(handled,), stands=(in_append,)) == []
    waited = CALL._replace(begin_ms=COPY.stored_ms + LEASE_MS + SOON_MS + 1, end_ms=20_000)
    assert problems(calls=(waited,)) == ["from stored to handled took"]
    sent_back = CALL._replace(how="r")
    late_retry = RETRY._replace(stored_ms=sent_back.begin_ms + 1 + 1_000 + SOON_MS + 1)
    retried = RETRIED._replace(begin_ms=late_retry.stored_ms, end_ms=late_retry.stored_ms)
    assert problems(copies=(COPY, late_retry), calls=(sent_back, retried)) == ["from due to stored for a retry took"]


def test_only_what_a_member_had_in_hand_when_it_stopped_may_be_handled_again() -> None:
    again = CALL._replace(life=10, begin_ms=13_000, end_ms=13_001)
    assert problems(calls=(CALL, again)) == ["handled again, and in no hand"]
    assert problems(calls=(CALL, again), stands=(STAND,)) == []
    # taken before the stop, begun after it
    taken = CALL._replace(begin_ms=14_001, end_ms=14_002)
    assert problems(calls=(again, taken), stands=(STAND,)) == []
    # not the last one before the stop
    between = Call(9, 1, Place(TOPIC, 1, 4), 10_007, 10_008, "e")
    other = COPY._replace(place=between.place, name=(0, 8))
    assert "handled again, and in no hand" in problems(
        copies=(COPY, other), calls=(CALL, between, again), stands=(STAND,)
    )


def test_what_processes_said_is_read() -> None:
    assert sent_of(0, ["i 7 10000", "o 7 1", "i 8 5", "f 8 6 4711", "i 9 5"]) == {
        (0, 7): Sent("o", 10_000),
        (0, 8): Sent("f", 5),
        (0, 9): Sent("i", 5),
    }
    assert copies_of([f"c {PLACE} 0 7 10000 10002", "w 1 2"]) == [COPY]
    assert calls_of(9, [f"s 1 10005 {PLACE}", f"e 1 10006 {PLACE}", f"s 2 5 {PLACE}"]) == [
        CALL,
        Call(9, 2, PLACE, 5, None, ""),
    ]
