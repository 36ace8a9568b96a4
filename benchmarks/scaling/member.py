"""Member: one consumer of the group. It asks brokers and moves towards its allocation, by the real rebalance."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.scaling.cluster import ONE_WAY_S, TOLD_S, TOPIC, Cluster
from rmqclient.cluster.client.routes import FRESH_S
from rmqclient.cluster.groups.member_list import ClusterSeat
from rmqclient.cluster.groups.members import LOOK_EVERY_S, pause_s
from rmqclient.cluster.groups.membership import PAUSES_S
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.rebalance import Rebalancer
from rmqclient.store import NOT_STRAINED, MessageQueue, Strained

CONFIG = ConsumerConfig()


class Granted:
    """A queue that a member has: the grant, and the process queue over it. No message ever runs."""

    revoked = False

    def __init__(self, cluster: Cluster, queue: MessageQueue, client_id: str) -> None:
        self._cluster = cluster
        self.queue = queue
        self._client_id = client_id

    @property
    def grant(self) -> Granted:
        """Itself."""
        return self

    def release(self) -> bool:
        """Commit the offset and free the lock."""
        self._cluster.call(self.queue.broker_name, "commit an offset")
        self._cluster.unlock(self.queue, self._client_id)
        return True

    def share_limits(self, queues: int) -> None:
        """Do nothing."""

    lent = None

    def pass_over(self, lent: object) -> None:
        """Do nothing."""


class IdleDelivery:
    """Has nothing to deliver, so that a queue is given up at once."""

    keeps_order = False

    def make_queue(self, grant: Any, deaths: object) -> Any:
        """Return the grant, which is its own process queue."""
        del deaths
        return grant

    def set_queues(self, queues: object) -> None:
        """Do nothing."""

    def is_handling(self, queue: object) -> bool:
        """Return False."""
        del queue
        return False

    is_between = is_handling
    kept_s = 0.0

    def has_waiting(self, queues: object) -> bool:
        """Return False."""
        del queues
        return False


class Seen:
    """What one member sees of its group and of its topic: a membership, and a backend with its topics."""

    group = "billing"
    topic = TOPIC

    def __init__(self, cluster: Cluster, client_id: str, chance: random.Random) -> None:
        self.client_id = client_id
        self.seats: tuple[ClusterSeat, ...] = ()
        self.route = cluster.queues
        self._cluster = cluster
        self._chance = chance
        self._tries: dict[MessageQueue, tuple[float, int]] = {}

    def beat(self) -> None:
        """Do nothing: heartbeats are counted apart."""

    def watch(self) -> bool:
        """Return False."""
        return False

    def ask(self) -> bool:
        """Ask a broker who is in the group; tell whether that has changed."""
        before, self.seats = self.seats, self._cluster.members(self._chance.choice(self._cluster.names))
        return self.seats is not before

    def counted(self) -> tuple[ClusterSeat, ...]:
        """Return who is in the group, as the last answer said."""
        if not self.seats:
            self.ask()
        return self.seats

    @property
    def topics(self) -> Seen:
        """Itself."""
        return self

    def read_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues by the route that this member knows."""
        del topic
        return self.route

    def renew(self, _grant: Granted) -> bool:
        """Return True: nobody steals a queue."""
        return True

    def grant(self, queue: MessageQueue) -> Granted | None:
        """Lock a queue and read its offset; None while another member has it, with the pauses of the real one."""
        now = self._cluster.clock.monotonic()
        again_at, tries = self._tries.get(queue, (0.0, 0))
        if now < again_at:
            return None
        if not self._cluster.lock(queue, self.client_id):
            self._tries[queue] = now + PAUSES_S[min(tries, len(PAUSES_S) - 1)], tries + 1
            return None
        self._tries.pop(queue, None)
        self._cluster.call(queue.broker_name, "read an offset")
        return Granted(self._cluster, queue, self.client_id)

    def interrupted(self, grant: object) -> Mapping[int, Sequence[Any]]:
        """Return nothing."""
        del grant
        return {}

    def lent(self, grant: object) -> None:
        """Return None."""

    def strained(self) -> Strained:
        """Return that nobody is busy."""
        return NOT_STRAINED

    def show_kept(self, *, busy: bool) -> None:
        """Do nothing."""

    def show_free(self) -> None:
        """Do nothing."""

    def tell(self, seats: Iterable[object]) -> None:
        """Do nothing, as on a cluster."""
        del seats

    def free_of(self, gone: set[str]) -> None:
        """Free the locks of dead members on the queues that this one wants, as it notices at its tries."""
        for queue in self._tries:
            owner = self._cluster.owner_of.get(queue)
            if owner in gone:
                self._cluster.unlock(queue, owner)


class Member:
    """One member, and when it does what."""

    def __init__(self, cluster: Cluster, client_id: str, strategy: str, compute_s: float) -> None:
        chance = random.Random(client_id)
        self.client_id = client_id
        self.has_started = self.is_dead = False
        self._cluster = cluster
        self._clock = cluster.clock
        self._compute_s = compute_s
        self._chance = chance
        self.seen = Seen(cluster, client_id, chance)
        everything: Any = self.seen
        self._rebalancer: Rebalancer[Any] = Rebalancer(everything, everything, IdleDelivery(), CONFIG, strategy)
        self._computed_for: tuple[object, object] = (None, None)
        self._is_to_step = False
        self._is_to_ask = False
        self._not_before = 0.0
        self.gone: set[str] = set()
        """Members that were seen to die."""

    def start(self) -> None:
        """Begin: look now, and every 20 s."""
        self.has_started = True
        self._step()
        self._clock.after(LOOK_EVERY_S * self._chance.random(), self._look)

    def die(self) -> None:
        """Do nothing any more. The locks stay."""
        self.is_dead = True

    def stop(self) -> None:
        """Give every queue back, and end."""
        self._rebalancer.release_all()
        self.is_dead = True

    def notify(self) -> None:
        """Hear from the brokers that the group has changed, and ask one of them."""
        if self._is_to_ask:
            return
        told_s = TOLD_S * self._chance.random() * len(self._cluster.seats) + ONE_WAY_S
        self._ask_at(self._clock.monotonic() + told_s)

    def learn_route(self, queues: tuple[MessageQueue, ...]) -> None:
        """Learn of other queues when the route that is known has become old."""

        def learn() -> None:
            self.seen.route = queues
            self._step()

        self._clock.after(FRESH_S * self._chance.random(), learn)

    def _look(self) -> None:
        if not self.is_dead:
            self._ask()
            self._clock.after(LOOK_EVERY_S, self._look)

    def _ask_at(self, when: float) -> None:
        if not self._is_to_ask and not self.is_dead:
            self._is_to_ask = True
            self._clock.at(max(when, self._not_before), self._ask_as_notified)

    def _ask_as_notified(self) -> None:
        self._is_to_ask = False
        begun = self._clock.monotonic()
        self._ask()
        ended = self._clock.monotonic()
        self._not_before = ended + pause_s(ended - begun)

    def _ask(self) -> None:
        if not self.is_dead and self.seen.ask():
            self._step()

    def _step(self) -> None:
        """Take one step of the real rebalance, and the next one when it asks for it."""
        self._is_to_step = False
        if self.is_dead:
            return
        known = self.seen.counted(), self.seen.route
        is_new = known[0] is not self._computed_for[0] or known[1] is not self._computed_for[1]
        if is_new:
            self._clock.spend(self._compute_s)
            self._computed_for = known
        self.seen.free_of(self.gone)
        self._rebalancer.step()
        wait_ms = self._rebalancer.next_look_ms
        # A settled member steps every 250 ms, too, and finds nothing; it may have put off what is new until then.
        if (wait_ms < CONFIG.liveness_interval_ms or is_new) and not self._is_to_step:
            self._is_to_step = True
            self._clock.after(max(wait_ms, 1) / 1000, self._step)
