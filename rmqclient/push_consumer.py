"""Push consumer: runs every handler of an application in one process.

Each handler is a member of its group. One thread renews leases, sees to the rebalance and sleeps on the membership
word in between; the handlers' own threads deliver.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rmqclient.concurrent_delivery import ConcurrentDelivery
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.filters import MessageFilter
from rmqclient.group import Member, MemberTable
from rmqclient.handler import Handler
from rmqclient.rebalance import Rebalancer
from store import MessageQueue, MessageStore, boottime, layout
from store.errors import QueueError

_log = logging.getLogger(__name__)

_MEMBERSHIP_WORD = layout.RUNTIME_HEADER.at["membership_word"]


@dataclass(frozen=True, slots=True)
class Counters:
    """What a process has done since its consumer started."""

    in_flight: int
    """Messages whose handler runs now."""
    handled: int
    failed: int
    message_started_ns: int
    """CLOCK_BOOTTIME when the handler call that runs longest was first seen running, 0 when none does."""


class Subscription:
    """One handler of this process: its membership, its queues, its threads."""

    def __init__(
        self, store: MessageStore, table: MemberTable, handler: Handler, client_id: str, config: ConsumerConfig
    ) -> None:
        self.handler = handler
        self.filter = MessageFilter(handler.tags, handler.where, handler.json)
        self.member: Member = table.join(handler.group, handler.topic, client_id, self.filter.expression)
        self.delivery = ConcurrentDelivery(store, handler, self.member.arrival_lane, config)
        self.rebalancer = Rebalancer(store, self.member, self.filter.tag_set, self.delivery, config)


class PushConsumer:
    """Every handler of one process. Not started by its constructor; :meth:`close` leaves the groups."""

    def __init__(
        self,
        store: MessageStore,
        handlers: Sequence[Handler],
        *,
        client_id: str | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._config = config or ConsumerConfig()
        self.client_id = client_id or f"{os.uname().nodename}@{os.getpid()}#{secrets.token_hex(4)}"
        self.subscriptions: list[Subscription] = []
        """One per handler; empty before the start and after the end."""
        self._closing = threading.Event()
        self._coordinator = threading.Thread(target=self._coordinate, name="rmq-coordinator", daemon=True)

    def start(self) -> None:
        """Join the groups, take queues and begin to deliver. Raises TableFull, StoreBusy."""
        table = MemberTable(self._store)
        for handler in self._handlers:
            self.subscriptions.append(Subscription(self._store, table, handler, self.client_id, self._config))
        self._step()
        for subscription in self.subscriptions:
            subscription.delivery.start()
        self._coordinator.start()

    def stop_taking(self) -> None:
        """Begin no further message; running ones go on."""
        for subscription in self.subscriptions:
            subscription.delivery.stop_taking()

    def drain(self, timeout_s: float) -> int:
        """Wait for the running handlers; return how many still run when the time is up. Leases are kept meanwhile."""
        deadline = time.monotonic() + timeout_s
        return sum(
            subscription.delivery.join(max(0.0, deadline - time.monotonic())) for subscription in self.subscriptions
        )

    def close(self) -> None:
        """Leave the groups; other members take the queues over at once. Closing twice does nothing."""
        self.stop_taking()
        self._closing.set()
        if self._coordinator.is_alive():
            self._store.state.signal_membership()
            self._coordinator.join()
        subscriptions, self.subscriptions = self.subscriptions, []
        for subscription in subscriptions:
            subscription.rebalancer.release_all()
            subscription.member.leave()

    @property
    def counters(self) -> Counters:
        """What this process has done so far."""
        now = boottime()
        deliveries = [subscription.delivery for subscription in self.subscriptions]
        started = [delivery.longest_running_since(now) for delivery in deliveries]
        return Counters(
            in_flight=sum(delivery.running for delivery in deliveries),
            handled=sum(delivery.handled for delivery in deliveries),
            failed=sum(delivery.failed for delivery in deliveries),
            message_started_ns=min((at for at in started if at), default=0),
        )

    @property
    def queues(self) -> dict[str, tuple[MessageQueue, ...]]:
        """The queues held now, by ``topic@group``."""
        return {
            f"{subscription.handler.topic}@{subscription.handler.group}": subscription.rebalancer.queues
            for subscription in self.subscriptions
        }

    def _coordinate(self) -> None:
        words = self._store.state.words
        while not self._closing.is_set():
            seen = words.load32(_MEMBERSHIP_WORD)
            self._step()
            if not self._closing.is_set():
                words.wait(_MEMBERSHIP_WORD, seen, self._config.liveness_interval_ms)

    def _step(self) -> None:
        for subscription in self.subscriptions:
            try:
                subscription.rebalancer.step()
            except (QueueError, ValueError, OSError) as error:  # the next look tries again
                _log.error("rebalance of group %s failed, trying again: %s", subscription.handler.group, error)
