"""One group of a Java consumer, a Go consumer and a local worker, which are killed at random while messages come."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rmqclient import Message, Producer
from rmqclient.testing import serve
from tests.interop.serve.members import Handled, Member, members

TOPIC = "Shared"
QUEUES = 6
PEACE_S = 150.0
"""A broker's lock, and a lease of a client whose connection is gone, end after 30 s and 60 s."""

UNCOMMITTED_S = 15.0
"""Java and Go commit their offsets every 5 s, or later on a busy host: what they handled since then may come again."""

SKEW_S = 1.0
"""A message may be handled so long after its member was to be killed."""

IN_FLIGHT_S = 5.0
"""A message may come again so long after it was handled when its queue moves: a member that does not pull for 2 s loses
a queue, and has not committed it then."""

SETTLED_S = 10.0
"""Within which a member that has joined has its queues."""

_AT_ONCE_S = 0.5


class Kill(NamedTuple):
    """When a member was killed, and when its next life was a consumer: queues move at both times."""

    at: float
    back: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What ``messages`` became: the names of the members by their first lives, each handling, and each kill."""

    messages: int
    names: tuple[str, ...]
    handled: list[Handled]
    kills: list[Kill]
    server_runs: bool

    @property
    def lost(self) -> list[int]:
        """Return the messages that nobody has handled."""
        return sorted(set(range(self.messages)) - {each.number for each in self.handled})

    @property
    def unexplained(self) -> list[tuple[Handled, Handled]]:
        """Return what was handled again although no kill, and no move after it, found it in flight or uncommitted."""
        return [pair for pair in self._repeats() if not any(_explains(kill, *pair) for kill in self.kills)]

    @property
    def at_once(self) -> list[tuple[Handled, Handled]]:
        """Return where a member went on in a queue right after another one had begun there.

        A queue moves from A to B once; A, B, A within a moment would be two owners at once, unless B was killed.
        """
        return [pair for lines in self._by_queue().values() for pair in self._crossings(lines)]

    def figures(self) -> dict[str, int]:
        """Return what there was to judge."""
        handled_by = Counter(each.name for each in self.handled)
        return {
            "messages": self.messages,
            "members killed": len(self.kills),
            **{f"handled by {name}": handled_by[name] for name in self.names},
            "handled again": len(self.handled) - len({each.number for each in self.handled}),
            "lost": len(self.lost),
            "handled again without a kill": len(self.unexplained),
            "queues with two owners at once": len(self.at_once),
        }

    def _repeats(self) -> list[tuple[Handled, Handled]]:
        seen: dict[int, Handled] = {}
        found = []
        for each in sorted(self.handled):
            if each.number in seen:
                found.append((seen[each.number], each))
            seen[each.number] = each
        return found

    def _by_queue(self) -> dict[int, list[Handled]]:
        queues: defaultdict[int, list[Handled]] = defaultdict(list)
        for each in sorted(self.handled):
            queues[each.queue_id].append(each)
        return queues

    def _crossings(self, lines: list[Handled]) -> list[tuple[Handled, Handled]]:
        runs = lines[:1] + [line for before, line in pairwise(lines) if before.member != line.member]
        return [
            (second, third)
            for first, second, third in zip(runs, runs[1:], runs[2:], strict=False)
            if first.member == third.member
            and third.at - second.at < _AT_ONCE_S
            and not any(second.at - SKEW_S < kill.at < third.at + SKEW_S for kill in self.kills)
        ]


def share_and_kill(seed: int, messages: int, per_second: int, scratch: Path) -> Outcome:
    """Send so many messages to one group, and kill a member every few seconds until all are sent.

    Returns when every message was handled, or a while after the last death.
    """
    chosen, handled, kills = random.Random(seed), list[Handled](), list[Kill]()
    with serve(scratch / "store") as server, Producer(str(server.root)) as producer:
        producer.create_topic(TOPIC, QUEUES)
        group = members(server, "sharing", TOPIC, scratch, handled)
        try:
            for number, member in enumerate(group):
                member.start(number)
            sending = threading.Thread(target=_send, args=(producer, messages, per_second))
            sending.start()
            while sending.is_alive():
                sending.join(chosen.uniform(2.0, 5.0))
                kills.append(_kill_one(chosen.choice(group), sum(member.lives for member in group)))
            _wait_for_all(handled, messages)
        finally:
            for member in group:
                member.kill()
        return Outcome(messages, tuple(member.name for member in group), handled, kills, server.is_running)


def _wait_for_all(handled: list[Handled], messages: int) -> None:
    deadline = time.monotonic() + PEACE_S
    while len(handled) < messages or len({each.number for each in handled}) < messages:
        if time.monotonic() > deadline:
            return  # what is missing is told
        time.sleep(0.2)


def _kill_one(member: Member, number: int) -> Kill:
    at = time.time()
    member.kill()
    member.start(number)
    return Kill(at, time.time())


def _send(producer: Producer, messages: int, per_second: int) -> None:
    begun = time.monotonic()
    for number in range(messages):
        while number > (time.monotonic() - begun) * per_second:
            time.sleep(0.005)
        producer.send(Message(TOPIC, b"%d" % number))


def _explains(kill: Kill, before: Handled, again: Handled) -> bool:
    """Tell whether a message came again because its member died, or because its queue moved to the next life.

    The former was in flight or not committed at the kill. The latter was in flight, because a client commits a queue
    when it gives it away while its handlers still run; or not committed, because the client had lost the queue.
    """
    died = kill.at - UNCOMMITTED_S < before.at < kill.at + SKEW_S and again.at > kill.at - SKEW_S
    moved = kill.at < again.at < kill.back + SETTLED_S and again.at - before.at < IN_FLIGHT_S
    return died or (moved and before.member != again.member)
