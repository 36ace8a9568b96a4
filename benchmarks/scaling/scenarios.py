"""Scenarios: what happens to a group, and how long it takes until every queue has its owner again."""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

from benchmarks.scaling.cluster import Cluster
from benchmarks.scaling.events import Clock
from benchmarks.scaling.member import Member
from rmqclient.allocation import Allocation, allocate
from rmqclient.cluster.groups.locks import RENEW_EVERY_S
from rmqclient.consuming import allocator, rebalance
from rmqclient.consuming.allocator import View

RESTARTED = 10
RESTART_S = 60.0
"""Within which so many members are restarted."""
AWAY_S = 10.0
"""How long a member is away that is restarted."""
PATIENCE_S = 120.0
KEPT = 8
"""Views whose allocations are kept: members look at different times."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one scenario came to."""

    scenario: str
    settled_s: float
    """From the beginning of the change to the last lock."""
    moved: int
    """Queues that have another owner than before."""
    asked: dict[str, int]
    """How often brokers were asked what."""
    busiest: int
    """Requests to the broker that got most."""
    unowned: int
    """Queues without an owner at the end: 0, or the group has not settled."""


class Group:
    """A simulated group on a simulated cluster."""

    def __init__(self, brokers: int, members: int, queues: int, strategy: str, seed: int) -> None:
        self._chance = random.Random(seed)
        self.clock = Clock()
        self.cluster = Cluster(self.clock, brokers, queues)
        self._strategy = strategy
        clients = [f"10.0.{number >> 8}.{number & 255}@{number}" for number in range(members)]
        self.compute_s = timed(lambda: allocate(strategy, clients, self.cluster.queues))
        self._members = {client_id: self._made(client_id) for client_id in clients}

    def start(self, waves: int) -> Outcome:
        """Start all members, in waves a second apart."""
        members, waves = list(self._members.values()), min(waves, len(self._members))

        def change() -> None:
            self._chance.shuffle(members)
            for wave in range(waves):
                self.clock.after(wave, lambda wave=wave: self._join(*members[wave::waves]))  # type: ignore[misc]

        return self._outcome(f"all members start, in {waves} waves a second apart", change)

    def join(self) -> Outcome:
        """Let one member join."""
        return self._outcome("one member joins", lambda: self._join(self._new(f"{self._middle().client_id}-new")))

    def stop(self) -> Outcome:
        """Let one member give its queues back and leave."""
        return self._outcome("one member leaves", lambda: self._leave(self._middle(), Member.stop))

    def die(self) -> Outcome:
        """Let one member be killed; its locks stay."""
        return self._outcome("one member is killed", lambda: self._leave(self._middle(), Member.die))

    def restart(self) -> Outcome:
        """Restart ten members, one after the other within a minute."""

        def change() -> None:
            chosen = self._chance.sample(sorted(self._members), min(RESTARTED, len(self._members)))
            for place, client_id in enumerate(chosen):
                self.clock.after(RESTART_S * place / len(chosen), lambda one=client_id: self._restart(one))  # type: ignore[misc]

        return self._outcome("ten members restart within a minute", change)

    def lose_broker(self) -> Outcome:
        """Let a broker leave the routes, which members notice within 30 s."""

        def change() -> None:
            lost = self.cluster.names[len(self.cluster.names) // 2]
            left = tuple(queue for queue in self.cluster.queues if queue.broker_name != lost)
            for queue in set(self.cluster.queues) - set(left):
                self.cluster.owner_of.pop(queue, None)
            self.cluster.queues = left
            for member in self._members.values():
                member.learn_route(left)

        return self._outcome("a broker leaves the routes", change)

    @property
    def renewals(self) -> float:
        """Requests a second that renew the locks of all members."""
        return len({(owner, queue.broker_name) for queue, owner in self.cluster.owner_of.items()}) / RENEW_EVERY_S

    def _outcome(self, scenario: str, change: Callable[[], None]) -> Outcome:
        begun, owners, asked = self.clock.monotonic(), dict(self.cluster.owner_of), Counter(self.cluster.asked)
        answered = {broker.name: broker.answered for broker in self.cluster.brokers.values()}
        self.cluster.last_change = begun
        with (
            mock.patch.object(rebalance, "time", self.clock),
            mock.patch.object(allocator, "time", self.clock),
            mock.patch.object(allocator, "_shared", self._remembered()),
        ):
            change()
            self.clock.run(begun + PATIENCE_S)
        now = self.cluster.owner_of
        return Outcome(
            scenario,
            self.cluster.last_change - begun,
            sum(owners[queue] != now.get(queue) for queue in owners),
            dict(self.cluster.asked - asked),
            max(broker.answered - answered[broker.name] for broker in self.cluster.brokers.values()),
            len(self.cluster.queues) - len(now),
        )

    @staticmethod
    def _remembered() -> Callable[[str, View], Allocation]:
        """Return the allocation of each view, computed once: in reality each member computes it in its own process."""
        known: deque[tuple[View, Allocation]] = deque(maxlen=KEPT)

        def shared(strategy: str, view: View) -> Allocation:
            for other, allocation in known:
                if other.seats is view.seats and other.queues is view.queues:
                    return allocation
            known.append((view, allocate(strategy, view.clients, view.queues)))
            return known[-1][1]

        return shared

    def _made(self, client_id: str) -> Member:
        return Member(self.cluster, client_id, self._strategy, self.compute_s)

    def _new(self, client_id: str) -> Member:
        member = self._members[client_id] = self._made(client_id)
        return member

    def _middle(self) -> Member:
        """Return the member in the middle of the list, whose coming and going moves as many queues as the average."""
        return self._members[sorted(self._members)[len(self._members) // 2]]

    def _join(self, *members: Member) -> None:
        self.cluster.change([member.client_id for member in members], set())
        for place, member in enumerate(members):
            self.clock.after(place / len(members), member.start)
        self._tell()

    def _leave(self, member: Member, how: Callable[[Member], None]) -> None:
        how(member)
        del self._members[member.client_id]
        self.cluster.change([], {member.client_id})
        for other in self._members.values():
            other.gone.add(member.client_id)
        self._tell()

    def _restart(self, client_id: str) -> None:
        self._leave(self._members[client_id], Member.stop)
        self.clock.after(AWAY_S, lambda: self._join(self._new(f"{client_id}-again")))

    def _tell(self) -> None:
        for member in self._members.values():
            if member.has_started:
                member.notify()


def timed(work: Callable[[], object]) -> float:
    """Return the processor time of the fastest of three runs, in seconds."""

    def once() -> float:
        begun = time.process_time()
        work()
        return time.process_time() - begun

    return min(once() for _ in range(3))
