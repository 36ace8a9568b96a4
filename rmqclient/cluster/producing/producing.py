"""Producing: state that the producers of one client share, and the parts that each of them gets."""

from __future__ import annotations

from collections.abc import Callable

from rmqclient.backend.limits import Limits
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.producing.replies import ClusterReplies, ClusterReplySender, Pushes
from rmqclient.cluster.producing.transactions import ClusterTransactions, Questions
from rmqclient.cluster.sending.producer_groups import ProducerGroups
from rmqclient.cluster.sending.sender import ClusterSender
from rmqclient.names import PRODUCER_GROUP
from rmqclient.store import MessageQueue


class Producing:
    """The producers of one client."""

    def __init__(self, client: ClusterClient, limits: Limits) -> None:
        self._client = client
        self._limits = limits
        self._groups = ProducerGroups(client)
        self._questions = Questions(client)
        self._pushes = Pushes(client)

    def sender(
        self, make_topic: Callable[[str], list[MessageQueue]], *, prepare: bool = True, group: str = PRODUCER_GROUP
    ) -> ClusterSender:
        """Return a sender for one producer of a group."""
        del make_topic, prepare  # brokers make topics
        return ClusterSender(self._client, self._groups, group, self._limits)

    def transactions(self, group: str, *, durable: bool) -> ClusterTransactions:
        """Return the transactions of a producer group."""
        del durable  # brokers flush as they are configured
        return ClusterTransactions(self._client, self._groups, self._questions, group)

    def replies(self) -> ClusterReplies:
        """Return the replies to one producer's requests."""
        return ClusterReplies(self._client, self._groups, self._pushes)

    def reply_sender(self) -> ClusterReplySender:
        """Return a sender of replies."""
        return ClusterReplySender(self._client)
