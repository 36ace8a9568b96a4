"""Producing: one room for all that clients store and decide, wired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.producers.questions import Questions
from rmqclient.broker.producers.recalls import Recalls
from rmqclient.broker.producers.replies import Replies
from rmqclient.broker.producers.transactions import Transactions
from rmqclient.broker.request import Handler, Peer, Request, Room
from rmqclient.broker.sending.appends import Appends
from rmqclient.broker.sending.flushes import Flushes
from rmqclient.broker.sending.retries import Retries
from rmqclient.broker.sending.sending import Sending
from rmqclient.broker.sending.topic_checks import TopicChecks
from rmqclient.broker.settings import ServeSettings
from rmqclient.broker.topics.topics import Topics
from rmqclient.store import MessageStore


class ConnectedProducers(Protocol):
    """Who is connected as a producer. For the thread of the event loop."""

    def producer_peers(self, group: str) -> Sequence[Peer]:
        """Return the connections of a group of producers."""

    def producer(self, client_id: str) -> Peer | None:
        """Return the connection of a producer by its client id."""


class Producing:
    """Answers those who send. ``later`` lets a thread of the pool answer a request."""

    def __init__(
        self,
        store: MessageStore,
        settings: ServeSettings,
        topics: Topics,
        clients: ConnectedProducers,
        groups: GroupSettings,
        later: Callable[[Handler, Request], None],
    ) -> None:
        self._flushes = Flushes(store, sync=settings.sync)
        appends = Appends(store, topics.open)
        checks = TopicChecks(topics, settings)
        retries = Retries(store, topics, groups, appends, self._flushes)
        self._replies = Replies(store, settings, checks, appends, self._flushes, clients.producer, later)
        self._questions = Questions(store, clients.producer_peers)
        sending = Sending(
            settings, checks, retries, appends, self._flushes, store.config.max_body_bytes, self._replies.expect, later
        )
        self._rooms: Sequence[Room] = (
            sending,
            retries,
            self._replies,
            Transactions(store, settings, self._flushes, self._questions),
            Recalls(settings, topics, appends),
        )

    def handlers(self) -> Mapping[int, Handler]:
        """Return what answers each request code."""
        return {code: handler for room in self._rooms for code, handler in room.handlers().items()}

    def slow_handlers(self) -> Mapping[int, Handler]:
        """Return what answers each request code that may take long."""
        return {code: handler for room in self._rooms for code, handler in room.slow_handlers().items()}

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use this loop for answers and questions that come by themselves, and listen."""
        self._flushes.use(loop)
        self._replies.begin(loop)
        self._questions.begin(loop)

    def close(self) -> None:
        """Let the answers that wait for the disk go out, and end the threads."""
        self._questions.close()
        self._replies.close()
        self._flushes.close()
