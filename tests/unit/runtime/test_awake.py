"""A process judges others by the time in which it has run itself."""

from __future__ import annotations

import itertools

import pytest

from rmqclient.store.runtime import awake as module
from rmqclient.store.runtime.awake import Awake, Pauses

S = 1_000_000_000
LEASE = 10 * S


@pytest.fixture
def awake() -> Awake:
    """Of a process that looked twice a second until it stood still from 105 to 120 s, and has just looked again."""
    found = Awake()
    found.begin(100 * S)
    for half in range(11):
        found.look(100 * S + half * S // 2)
    found.look(120 * S)
    return found


def test_time_in_which_this_process_stood_still_counts_for_nobody(awake: Awake) -> None:
    assert awake.ran_since(100 * S, 120 * S) == 5 * S + S // 2  # it may have run until its next look was due
    assert awake.ran_since(110 * S, 120 * S) == 0
    assert awake.ran_since(120 * S, 121 * S) == S


def test_a_lease_ends_when_this_process_has_run_through_it(awake: Awake, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given one that was renewed when the process stood still, and one that was not renewed since long before
    monkeypatch.setattr(module, "boottime", lambda: 120 * S)
    assert not awake.is_over(105 * S + LEASE, LEASE)
    assert awake.is_over(104 * S, LEASE)

    # Then the first is over after so much time as is left of it
    for later in range(1, 20):
        now = 120 * S + later * S // 2
        awake.look(now)
        monkeypatch.setattr(module, "boottime", lambda now=now: now)
        assert awake.is_over(105 * S + LEASE, LEASE) == (now > 129 * S + S // 2)


def test_who_judges_first_after_a_pause_is_as_mild_as_the_thread_that_looks(awake: Awake) -> None:
    awake.look(120 * S + S // 2)
    assert awake.ran_since(120 * S, 300 * S) == S


def test_a_look_that_is_a_little_late_is_no_pause() -> None:
    awake = Awake()
    awake.begin(100 * S)
    assert awake.ran_since(100 * S, 101 * S) == S


def test_without_a_thread_that_looks_nobody_has_stood_still() -> None:
    awake = Awake()
    assert awake.ran_since(100 * S, 500 * S) == 400 * S
    awake.begin(900 * S)
    assert awake.ran_since(500 * S, 901 * S) == 401 * S


def test_pauses_that_follow_each_other_are_one() -> None:
    pauses = Pauses()
    for second in range(1_000):
        pauses.add(second, second + 1)
    assert list(pauses) == [(0, 1_000)]
    assert pauses.ns_since(400) == 600


def test_the_time_that_ran_goes_on_as_before_however_many_pauses_there_were(awake: Awake) -> None:
    ran = [awake.ran_since(0, (130 + 2 * number) * S) for number in range(200)]
    assert {later - earlier for earlier, later in itertools.pairwise(ran)} == {S // 2}
