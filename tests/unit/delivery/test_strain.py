"""When a member says that others are to have its queues."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from rmqclient.consuming.strain import Strain
from rmqclient.store import NOT_STRAINED, MemberTable, MessageStore, Strained, boottime


class Told:
    """A membership that keeps what is shown of it: None for free."""

    def __init__(self) -> None:
        self.shown: list[bool | None] = []

    def show_kept(self, *, busy: bool) -> None:
        self.shown.append(busy)

    def show_free(self) -> None:
        self.shown.append(None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_member_is_busy_from_a_second_on_while_messages_wait_until_a_thread_is_free() -> None:
    told: Any = Told()
    one = Strain(told)
    for kept_s, waits in ((0.5, True), (1.0, False), (1.3, True), (5.0, False), (0.0, True), (0.0, True)):
        one.look(kept_s, partial(bool, waits))
    assert told.shown == [False, True, True, None]


def test_a_member_whose_calls_end_soon_after_its_queues_moved_waits_for_longer_next_time(clock: list[float]) -> None:
    told: Any = Told()
    one = Strain(told)

    def call(seconds: float) -> bool:
        """Whether the member became busy in a call that takes so long."""
        begin, told.shown[:] = clock[0], []
        while clock[0] < begin + seconds:
            one.look(clock[0] - begin, lambda: True)
            clock[0] += 0.25
        one.look(0.0, lambda: True)
        return True in told.shown

    assert [call(1.5) for _ in range(5)] == [True, False, False, False, False]
    assert [call(15.0), call(1.5)] == [True, True]


def test_only_members_that_long_calls_have_not_kept_lately_help_a_busy_one(store: MessageStore) -> None:
    table: MemberTable = store.members()
    a, b, c = (table.join("g", "t", name, "*") for name in "abc")
    assert table.roll.strained("g", "t", 10_000) == NOT_STRAINED
    a.show_kept(busy=True)
    b.show_kept(busy=False)
    assert table.roll.strained("g", "t", 10_000) == Strained(frozenset("a"), ("c",))
    table.slots.store(b.slot, "kept_at", boottime() - 3_000_000_000)
    assert table.roll.strained("g", "t", 10_000) == Strained(frozenset("a"), ("b", "c"))
    a.show_free()
    assert table.roll.strained("g", "t", 10_000) == NOT_STRAINED
    c.leave()


def test_nobody_is_busy_in_a_group_with_members_of_other_languages(store: MessageStore) -> None:
    table = store.members()
    busy = table.join("g", "t", "a", "*")
    table.join("g", "other", "java", "tags *; remote")
    busy.show_kept(busy=True)
    assert table.roll.strained("g", "t", 10_000) == NOT_STRAINED
