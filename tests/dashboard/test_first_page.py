"""A person who reads only the first page: what was broken on purpose needs attention, with the way to it.

The stores are those of which ``rmq check`` names the trouble. Nothing has hung for longer than the host is up, and that
may be a minute: the limit is fifteen seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")

from rmqclient.dashboard.looking import needs
from rmqclient.health.limits import Limits
from tests.dashboard.visiting import text_of, visitor
from tests.workers.looking import test_what_was_broken_on_purpose as broken
from tests.workers.looking.test_what_was_broken_on_purpose import Store, healthy

__all__ = ["healthy"]

NEED = re.compile(r'<li class="(?:warn|bad)"><div><b class="name">(.*?)</li>', re.DOTALL)


@pytest.mark.guarantee("G55")
@pytest.mark.parametrize(
    ("break_it", "subject", "leads_to"),
    [
        (broken.a_hung_handler, "Hung", "/workers"),
        (broken.a_worker_that_lost_a_thread, "Workers", "/workers"),
        (broken.a_paused_group, "billing", "/groups/billing"),
        (broken.a_group_without_workers, "billing", "/groups/billing"),
        (broken.messages_that_were_removed_unread, "billing", "/groups/billing"),
        (broken.a_full_disk, "Store", ""),
        (broken.a_failed_flush, "Store", ""),
        (broken.dead_letters, "billing", "/dead-letters?group=billing"),
        (broken.an_overdue_schedule, "Schedules", "/schedules?tab=crons"),
        (broken.a_missing_topic, "Topic", ""),
    ],
)
def test_what_is_broken_needs_attention(
    healthy: Store,
    break_it: Callable[[Store], object],
    subject: str,
    leads_to: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(needs, "Limits", partial(Limits, message_age_s=15))
    with visitor(healthy.store.root) as browser:
        before = NEED.findall(browser.get("/").text)  # the disk of this machine may be full
    break_it(healthy)
    with visitor(healthy.store.root) as browser:
        page = browser.get("/").text
    (found,) = [each for each in NEED.findall(page) if each not in before]
    assert found.startswith(subject)
    assert leads_to in found


@pytest.mark.guarantee("G55")
def test_a_group_whose_every_message_failed_is_told_with_their_number(healthy: Store) -> None:
    broken.every_message_fails(healthy, 20)
    with visitor(healthy.store.root) as browser:
        page = browser.get("/").text
    assert "Failed messages: 20 wait for a retry, all in billing." in text_of(page)
    assert "waiting: 20 for a retry" in text_of(page.partition('id="group-billing"')[2].partition("</li>")[0])
