"""Producing: one room for sends, transactions, replies and recalls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from rmqclient.broker.clients.member import Members, Producer
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.producers.questions import Questions
from rmqclient.broker.producers.recalls import Recalls
from rmqclient.broker.producers.transactions import Transactions
from rmqclient.broker.request import Handler, Peer, Request
from rmqclient.broker.routes import Room, Route
from rmqclient.broker.sending.appends import Appends
from rmqclient.broker.sending.flushes import Flushes
from rmqclient.broker.sending.incoming import Incoming, of_send
from rmqclient.broker.sending.retries import Retries
from rmqclient.broker.sending.sending import Sending
from rmqclient.broker.sending.topic_checks import TopicChecks
from rmqclient.broker.settings import ServeSettings
from rmqclient.broker.topics.topics import Topics
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageStore

if TYPE_CHECKING:
    from rmqclient.broker.producers.replies import Replies


class Producing:
    """Answers requests of producers. ``later`` answers a request on a thread of the pool."""

    def __init__(
        self,
        store: MessageStore,
        settings: ServeSettings,
        topics: Topics,
        producers: Members[Producer],
        groups: GroupSettings,
        later: Callable[[Handler, Request], None],
    ) -> None:
        self._flushes = Flushes(store, sync=settings.sync)
        appends = Appends(store, topics.open)
        checks = TopicChecks(topics, settings)
        retries = Retries(store, topics, groups, appends, self._flushes)

        def replies() -> Replies:
            from rmqclient.broker.producers.replies import Replies  # noqa: PLC0415 - few servers need it

            return Replies(store, settings, checks, appends, self._flushes, producers.newest_peer, later)

        self._make_replies = replies
        self._replies: Replies | None = None
        self._making = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._questions = Questions(store, producers.open_peers)
        sending = Sending(
            settings, checks, retries, appends, self._flushes, store.config.max_body_bytes, self._expect_reply, later
        )
        self._rooms: Sequence[Room] = (
            sending,
            retries,
            Transactions(store, settings, self._flushes, self._questions),
            Recalls(settings, topics, appends),
        )

    def routes(self) -> Iterable[Route]:
        """Declare the requests of producers."""
        for room in self._rooms:
            yield from room.routes()
        for code in (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2):
            yield Route(code, self._reply, needs=of_send, writes=True)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use this loop for delayed answers and transaction checks, and start them."""
        self._flushes.use(loop)
        self._loop = loop
        self._questions.begin(loop)

    def close(self) -> None:
        """Send the answers that wait for the disk, and end the threads."""
        self._questions.close()
        with self._making:
            if self._replies is not None:
                self._replies.close()
        self._flushes.close()

    def _reply(self, request: Request) -> Frame | None:
        return self._know_replies().reply(request)

    def _expect_reply(self, request: Incoming, peer: Peer) -> None:
        self._know_replies().expect(request, peer)

    def _know_replies(self) -> Replies:
        """Return the room of replies, made at its first use. For any thread."""
        with self._making:
            if self._replies is None:
                self._replies = self._make_replies()
                if self._loop is not None:
                    self._replies.begin(self._loop)
            return self._replies
