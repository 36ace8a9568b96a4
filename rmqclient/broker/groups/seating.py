"""Seating: which remote member has a seat for which of its topics."""

from __future__ import annotations

from rmqclient.broker.clients.member import Consumer
from rmqclient.broker.groups.leases import Leases
from rmqclient.broker.groups.seats import Seats
from rmqclient.errors import QueueError
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class Seating:
    """Gives members their seats and takes them back, each with the queues of its topic. For the event loop's thread."""

    def __init__(self, seats: Seats, leases: Leases) -> None:
        self._seats = seats
        self._leases = leases
        self._topics_of: dict[Consumer, set[str]] = {}
        self._unseated: set[Consumer] = set()
        self._logged: set[tuple[str, str, str]] = set()

    def joined(self, consumer: Consumer) -> None:
        """Give a member its seats, and take back those of topics that it no longer subscribes to."""
        for topic in self._topics_of.setdefault(consumer, set()) - consumer.subscriptions.keys():
            self._take_back(consumer, topic)
        self._sit(consumer)

    def left(self, consumer: Consumer) -> None:
        """Take a member's queues and seats back."""
        self._unseated.discard(consumer)
        self._leases.leave(consumer)
        self._leave_free(consumer)

    def look(self) -> None:
        """Try again to seat members without a seat, and take back the free seats of those that are gone."""
        for consumer in list(self._unseated):
            self._sit(consumer)
        for consumer in [each for each in self._topics_of if not each.peer.is_open]:
            self._leave_free(consumer)

    def _take_back(self, consumer: Consumer, topic: str) -> None:
        self._topics_of[consumer].discard(topic)
        self._leases.release_topic(consumer, topic)
        self._seats.leave(consumer, topic)

    def _sit(self, consumer: Consumer) -> None:
        """Take a seat for every topic; a failed one is tried again at each look."""
        self._unseated.discard(consumer)
        for topic, subscription in consumer.subscriptions.items():
            try:
                sits = self._seats.sit(consumer, subscription)
            except QueueError as error:
                self._complain(consumer, topic, f"has no seat, and gets no messages: {error}")
                sits = False
            else:
                if not sits:
                    wants = f"{subscription.expression_type} {subscription.expression!r}"
                    self._complain(consumer, topic, f"wants {wants}, and local members want others: it gets none")
            if sits:
                consumer.refused.discard(topic)
                self._topics_of[consumer].add(topic)
            else:
                consumer.refused.add(topic)
                self._unseated.add(consumer)
                self._take_back(consumer, topic)

    def _leave_free(self, consumer: Consumer) -> None:
        """Leave the seats of topics in which no queue is reserved for a client that may come back."""
        topics = self._topics_of.get(consumer, set())
        for topic in [each for each in topics if not self._leases.has_any(consumer, each)]:
            topics.discard(topic)
            self._seats.leave(consumer, topic)
        if not topics:
            self._topics_of.pop(consumer, None)

    def _complain(self, consumer: Consumer, topic: str, text: str) -> None:
        key = (consumer.group, topic, consumer.client_id)
        if key not in self._logged:
            if len(self._logged) >= 10_000:
                self._logged.clear()
            self._logged.add(key)
            _log.error("group %s, topic %s: %s %s", consumer.group, topic, consumer.client_id, text)
