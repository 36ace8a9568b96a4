"""Schedules in real workers, which are killed."""

from __future__ import annotations

import functools
import itertools
import os
import random
import signal
from collections.abc import Callable
from datetime import timedelta

import pytest

from rmqclient import ReceivedMessage
from rmqclient.store import open_store
from tests.workers.supervised import Supervised, eventually

SECOND = timedelta(seconds=1)

pytestmark = pytest.mark.slow


def sent(supervised: Supervised) -> list[ReceivedMessage]:
    with open_store(supervised.root, create=False, housekeeping=False) as store:
        return [
            store.messages.at(queue, number)
            for queue in store.topics.all_queues()
            for number in range(store.topics.max_offset(queue))
        ]


@pytest.mark.guarantee("G36")
def test_every_second_has_one_message_while_workers_and_supervisors_are_killed(
    supervise: Callable[..., Supervised],
) -> None:
    # Given three workers with a schedule of every second
    first = supervise("scheduling", "--processes", "3")
    first.ready(3)

    # When workers are killed at random moments, and then all at once with their supervisor
    for kills in range(6):
        eventually(functools.partial(have_come, first, kills), "another second", first)
        number, pid = random.choice(list(first.pids().items()))
        os.kill(pid, signal.SIGKILL)
        first.replaced(number, pid)
    first.end()
    before = len(lines(first))
    again = supervise("scheduling", "--processes", "2")
    eventually(lambda: len(lines(again)) > before + 2, "seconds under another supervisor", again)
    again.process.send_signal(signal.SIGTERM)
    assert again.exit_code() == 0

    # Then each second from the first to the last has one message, sent by some worker
    messages = sent(again)
    ticks = sorted(message.keys[-1].removeprefix("cron-second-") for message in messages)
    times = [to_seconds(tick[-9:-1]) for tick in ticks]
    assert {(later - earlier) % timedelta(days=1) for earlier, later in itertools.pairwise(times)} == {SECOND}
    assert all(message.body.decode().partition(" ")[2] == message.keys[-1][-9:-1] for message in messages)
    assert len({message.body.decode().partition(" ")[0] for message in messages}) >= 2


def have_come(supervised: Supervised, seconds: int) -> bool:
    return len(lines(supervised)) > seconds


def lines(supervised: Supervised) -> list[str]:
    if not supervised.record_path.exists():
        return []
    return supervised.record_path.read_text(encoding="utf-8").splitlines()


def to_seconds(clock: str) -> timedelta:
    hours, minutes, seconds = map(int, clock.split(":"))
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)
