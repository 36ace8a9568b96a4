"""Broker: the rooms that answer requests, wired to one open store, and the table of routes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from rmqclient.broker.administration.rates import Rates
from rmqclient.broker.clients.awaited import Awaited
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.groups.membership import MembershipRoom
from rmqclient.broker.groups.room import GroupsRoom
from rmqclient.broker.limits.counters import Counters
from rmqclient.broker.limits.made import Made
from rmqclient.broker.producers.producing import Producing
from rmqclient.broker.pulling.pulling import Pulling
from rmqclient.broker.pulling.rules import Commit, Leases, NoLeases, no_commit
from rmqclient.broker.queries.messages import MessageQueries
from rmqclient.broker.queries.queues import QueueQueries
from rmqclient.broker.quick.sends import QuickSends
from rmqclient.broker.request import Handler, Request
from rmqclient.broker.routes import Room, Route
from rmqclient.broker.settings import STORE, ServeSettings
from rmqclient.broker.topics.kv_settings import KvSettings
from rmqclient.broker.topics.name_server import NameServer
from rmqclient.broker.topics.topics import Topics
from rmqclient.errors import QueueError
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageStore
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_SLOW_THREADS = 4


class Broker:
    """Answers the requests of all connections. Its methods are for the thread of the event loop."""

    def __init__(self, store: MessageStore, settings: ServeSettings) -> None:
        self.store = store
        self.settings = settings
        self._root = str(settings.root.absolute())  # a short relative path could be a part of any word
        self.counters = Counters()
        made = Made(settings.limits, self.counters)
        self.topics = Topics(store, settings, made)
        self.group_settings = GroupSettings(settings.root, read_only=settings.read_only, made=made)
        awaited = Awaited(settings.limits.awaited_topics, self.counters)
        self.groups = GroupsRoom(
            store,
            self.topics,
            self.group_settings,
            settings.broker_name,
            self.counters,
            awaited,
            made,
            read_only=settings.read_only,
        )
        self._membership = MembershipRoom(self.groups, self.topics, self.group_settings, self.counters)
        self.producing = Producing(
            store, settings, self.topics, self.groups.clients.producers, self.group_settings, self.answer_later
        )
        self._rates = Rates(store)
        clients = self.groups.clients
        leases: Leases = self.groups.leases
        commit: Commit = self.groups.commits.commit
        if store.life.is_replica or settings.read_only:
            leases, commit = NoLeases(), no_commit
        reads_elsewhere = settings.replica is not None or store.life.is_replica
        self._pulling = Pulling(
            store,
            self.topics,
            self.group_settings,
            clients,
            leases,
            commit,
            counters=self.counters,
            most_held=settings.limits.held_pulls,
            memory_percent=settings.memory_percent if reads_elsewhere else None,
        )
        self.groups.transfers.when_free(self._pulling.held.look_at)
        rooms: Sequence[Room] = (
            NameServer(self.topics, settings, awaited.note, is_replica=store.life.is_replica),
            KvSettings(settings.root, read_only=settings.read_only),
            self._membership,
            self.groups,
            self.producing,
            self._pulling,
            MessageQueries(store),
            QueueQueries(store, self.topics, clients),
        )
        self._routes: dict[int, Route] = {}
        self._take_in(*rooms)
        self._knows_tools = False
        self._pool = ThreadPoolExecutor(_SLOW_THREADS, "rmq-serve")
        self.quick = QuickSends(store, self.topics, settings)
        """Answers plain sends in the kernel, before their frames are parsed."""

    def answer(self, request: Request) -> Frame | None:
        """Return the answer to a request; None when it comes later, or never."""
        route = self.route(request.code)
        if route is None:
            return request.failure(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
            )
        if route.slow:
            self.answer_later(route.handler, request)
            return None
        return self._answer(route.handler, request)

    def route(self, code: int) -> Route | None:
        """Return the route of a request code; None if no room answers it."""
        return self._routes.get(code) or self.routes().get(code)

    def routes(self) -> Mapping[int, Route]:
        """Return all routes by their codes."""
        if not self._knows_tools:
            self._know_tools()
        return self._routes

    def _know_tools(self) -> None:
        """Add the routes of administration, at the first request of a tool."""
        from rmqclient.broker.administration.room import Administration  # noqa: PLC0415 - as the docstring says

        self._knows_tools = True
        clients = self.groups.clients
        self._take_in(
            Administration(
                self.store, self.topics, self.group_settings, clients, self.settings, self.answer_later, self._rates
            )
        )

    def _take_in(self, *rooms: Room) -> None:
        for room in rooms:
            self._routes |= {route.code: route for route in room.routes()}

    def drain(self) -> None:
        """Answer held requests with "nothing found", because the server ends."""
        self._pulling.drain()

    def close(self) -> None:
        """End the threads, after the requests that they have begun."""
        self._pool.shutdown(cancel_futures=True)
        self._pulling.close()
        self.producing.close()
        self._rates.close()
        self._membership.close()
        self.groups.close()
        self.group_settings.close()

    def answer_later(self, handler: Handler, request: Request) -> None:
        """Answer a request on a thread of the pool.

        A request that only reads is skipped if its client has hung up. One that writes is carried out: Go and C++
        clients do not set the oneway bit when they need no answer, and may close the connection at once.
        """
        loop = asyncio.get_running_loop()
        writes = self._routes[request.code].writes

        def run() -> None:
            if not request.peer.is_open and not request.frame.is_oneway and not writes:
                return  # a client that asks and hangs up repeatedly must not keep others waiting
            answer = self._answer(handler, request)
            if answer is not None:
                loop.call_soon_threadsafe(request.answer, answer)

        self._pool.submit(run)

    def _answer(self, handler: Handler, request: Request) -> Frame | None:
        try:
            answer = handler(request)
        except AnswerError as error:
            answer = request.failure(error.code, error.remark or str(error))
        except (QueueError, ValueError) as error:
            answer = request.failure(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} {error}")
        except Exception as error:  # noqa: BLE001 - a request must not end the server, whatever it holds
            _log.exception("request %d of %s failed", request.code, request.peer.remote)
            answer = request.failure(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} {error}")
        if answer is not None and answer.remark is not None and self._root in answer.remark:
            answer.remark = answer.remark.replace(self._root, STORE)
        return answer
