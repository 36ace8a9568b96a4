"""Administration: all requests of tools, as one room.

It is half of the broker's code, so the broker imports it at the first such request.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from rmqclient.broker.administration.broker_info import BrokerInfo
from rmqclient.broker.administration.broker_settings import BrokerSettings
from rmqclient.broker.administration.connections import Connections, LocalMembers
from rmqclient.broker.administration.consumption import AnswerLater, Consumption
from rmqclient.broker.administration.group_commands import GroupCommands
from rmqclient.broker.administration.progress import Progress
from rmqclient.broker.administration.rates import Rates
from rmqclient.broker.administration.relays import Relays
from rmqclient.broker.administration.resets import Resets
from rmqclient.broker.administration.topic_commands import TopicCommands
from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.routes import Room, Route
from rmqclient.broker.settings import ServeSettings
from rmqclient.broker.topics.topics import Topics
from rmqclient.store import MessageStore


class Administration:
    """Answers requests of RocketMQ's tools."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        group_settings: GroupSettings,
        clients: Clients,
        settings: ServeSettings,
        answer_later: AnswerLater,
        rates: Rates,
    ) -> None:
        name, read_only = settings.broker_name, settings.read_only
        progress, local = Progress(store, topics, name), LocalMembers(store, clients)
        self._rooms: tuple[Room, ...] = (
            TopicCommands(store, topics, rates, name),
            GroupCommands(store, group_settings, progress),
            Connections(clients, local),
            Consumption(topics, group_settings, progress, rates, clients, local, answer_later),
            Resets(store, topics, group_settings, progress, clients, local, name, answer_later, read_only=read_only),
            Relays(store, clients, local, name),
            BrokerInfo(store, rates, read_only=read_only),
            BrokerSettings(store, settings),
        )

    def routes(self) -> Iterable[Route]:
        """Declare the requests of tools."""
        return chain.from_iterable(room.routes() for room in self._rooms)
