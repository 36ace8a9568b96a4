"""Kills of senders that wait for replicas: what was answered without them is on the disk before."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rmqclient.store import MessageStore, boottime, open_store
from rmqclient.store.append.replicas import Copies
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.settings.replication import read_replication
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.support.stores import SMALL, abandon


@pytest.mark.crash
@pytest.mark.guarantee("G78")
@pytest.mark.parametrize("with_others", [False, True], ids=["alone", "beside_another"])
@pytest.mark.parametrize("point", [CrashPoint.REPLICATION_TEMPORARY, CrashPoint.MISSING_NOTED])
def test_no_send_is_answered_without_replicas_before_that_is_on_the_disk(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint, with_others: bool
) -> None:
    # When a sender is killed while it writes down that replicas lack its message
    if not with_others:
        abandon(store)
    notes = str(root.with_name("notes"))
    said = nursery.kill_at_its_point(Order(scenario="send_replicated", root=str(root), notes=notes, point=point.name))

    # Then nobody was told so, and the next one finds, or writes, what is on the disk
    assert said == ["True"]
    is_noted = read_replication(root).missing_from is not None
    assert is_noted is (point is CrashPoint.MISSING_NOTED)
    with open_store(root, SMALL, housekeeping=False) as again:
        assert again.replicas.copies(again.state.published_to) is Copies.ABSENT
        assert again.state.is_missing
        assert read_replication(root).missing_from is not None


@pytest.mark.crash
@pytest.mark.guarantee("G76")
def test_senders_go_on_when_the_process_that_says_how_far_replicas_are_dies_before_it_wakes_them(
    store: MessageStore, root: Path, nursery: Nursery
) -> None:
    # Given a sender that waits
    order = Order(scenario="send_replicated", root=str(root), notes=str(root.with_name("notes")))
    assert nursery.run(order) == 0
    end = store.state.published_to
    store.log_sending.say(0, boottime() + 60 * 10**9)
    found: list[Copies] = []
    waiting = threading.Thread(target=lambda: found.append(store.replicas.copies(end)))
    waiting.start()

    # When the word moves, and nobody is woken
    store.state.replicated_to = end
    waiting.join(60)
    assert found == [Copies.MADE]
