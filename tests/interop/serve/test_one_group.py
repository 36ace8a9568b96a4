"""A Java consumer, a Go consumer and a local worker share a group over one store, and are killed at random.

``RMQ_TEST_GROUP_MESSAGES=1000000`` sends as many messages.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.testing import serve
from tests.interop.rocketmq import BROKER_4_9_7, why_not
from tests.interop.serve.members import Handled, Member, eventually, members

MESSAGES = int(os.environ.get("RMQ_TEST_GROUP_MESSAGES", "20000"))
PER_SECOND = 2_000 if MESSAGES <= 20_000 else 5_000
QUEUES = 6
PEACE_S = 150.0
"""A broker's lock, and a lease of a client whose connection is gone, end after 30 s and 60 s."""

UNCOMMITTED_S = 15.0
"""Java and Go commit their offsets every 5 s, or later on a busy host: what they handled since then may come again."""

SKEW_S = 1.0
"""A message may be handled so long after its member was to be killed."""

REASON = why_not(BROKER_4_9_7) or ("" if shutil.which("go") else "there is no Go")


@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_three_languages_share_a_group_while_members_are_killed(tmp_path: Path, report: list[str]) -> None:
    chosen, handled, kills = random.Random(7), list[Handled](), list[float]()
    with serve(tmp_path / "store") as server, Producer(str(server.root)) as producer:
        producer.create_topic("Shared", QUEUES)
        group = members(server, "sharing", "Shared", tmp_path, handled)
        try:
            for number, member in enumerate(group):
                member.start(number)
            sending = threading.Thread(target=send, args=(producer,))
            sending.start()
            while sending.is_alive():
                sending.join(chosen.uniform(2.0, 5.0))
                kill_one(chosen.choice(group), kills, sum(member.lives for member in group))
            eventually(lambda: len({each.number for each in handled}) == MESSAGES, "every message", PEACE_S)
        finally:
            for member in group:
                member.kill()
        assert server.is_running
    counted = Counter(each.number for each in handled)
    by_name = Counter(group[each.member].name if each.member < len(group) else "later" for each in handled)
    assert counted.keys() == set(range(MESSAGES))
    late = [pair for pair in repeats(handled) if not any(explains(kill, *pair) for kill in kills)]
    assert not late, f"repeated without a kill: {late[:5]}"
    assert not (both := at_once(handled, kills)), f"two owners at once: {both[:5]}"
    repeated = len(handled) - MESSAGES
    report.append(f"one group: {MESSAGES} messages, {len(kills)} kills, {repeated} repeats, 0 lost; {dict(by_name)}")


def kill_one(member: Member, kills: list[float], number: int) -> None:
    """Kill a member, and start it again."""
    kills.append(time.time())
    member.kill()
    member.start(number)


def send(producer: Producer) -> None:
    """Send every message, some thousand a second."""
    begun = time.monotonic()
    for number in range(MESSAGES):
        while number > (time.monotonic() - begun) * PER_SECOND:
            time.sleep(0.005)
        producer.send(Message("Shared", b"%d" % number))


def repeats(handled: list[Handled]) -> list[tuple[Handled, Handled]]:
    """Return what was handled before, each behind the last time that it was."""
    seen: dict[int, Handled] = {}
    found = []
    for each in sorted(handled):
        if each.number in seen:
            found.append((seen[each.number], each))
        seen[each.number] = each
    return found


def explains(kill: float, before: Handled, again: Handled) -> bool:
    """Tell whether a message was in flight or not committed at a kill, and came again after it."""
    return kill - UNCOMMITTED_S < before.at < kill + SKEW_S and again.at > kill - SKEW_S


def at_once(handled: list[Handled], kills: list[float], within_s: float = 0.5) -> list[tuple[Handled, Handled]]:
    """Return where a member went on in a queue right after another one had begun there.

    A queue moves from A to B once; A, B, A within a moment would be two owners at once, unless B was killed meanwhile.
    """
    queues: defaultdict[int, list[Handled]] = defaultdict(list)
    for each in sorted(handled):
        queues[each.queue_id].append(each)
    found = []
    for lines in queues.values():
        runs = lines[:1] + [line for before, line in pairwise(lines) if before.member != line.member]
        for first, second, third in zip(runs, runs[1:], runs[2:], strict=False):
            was_killed = any(second.at - SKEW_S < kill < third.at + SKEW_S for kill in kills)
            if first.member == third.member and third.at - second.at < within_s and not was_killed:
                found.append((second, third))
    return found
