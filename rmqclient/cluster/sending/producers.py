"""Producers: what the producers of one client share, and the parts that each of them gets."""

from __future__ import annotations

from rmqclient.backend.limits import Limits
from rmqclient.backend.protocols import ProducerSettings
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.sending.producer_groups import ProducerGroups
from rmqclient.cluster.sending.replies import ClusterReplies, ClusterReplySender, Pushes
from rmqclient.cluster.sending.sender import ClusterSender
from rmqclient.cluster.sending.transactions import ClusterTransactions, Questions


class ClusterProducers:
    """The producers of one client."""

    def __init__(self, client: ClusterClient, limits: Limits) -> None:
        self._client = client
        self._limits = limits
        self._groups = ProducerGroups(client)
        self._questions = Questions(client)
        self._pushes = Pushes(client)

    def sender(self, settings: ProducerSettings) -> ClusterSender:
        """Return a sender for one producer of a group."""
        return ClusterSender(self._client, self._groups, settings.group, self._limits)

    def transactions(self, settings: ProducerSettings) -> ClusterTransactions:
        """Return the transactions of a producer group."""
        return ClusterTransactions(self._client, self._groups, self._questions, settings.group)

    def replies(self) -> ClusterReplies:
        """Return the replies to one producer's requests."""
        return ClusterReplies(self._client, self._groups, self._pushes)

    def reply_sender(self) -> ClusterReplySender:
        """Return a sender of replies."""
        return ClusterReplySender(self._client)
