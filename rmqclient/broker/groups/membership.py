"""Membership: requests by which clients join and leave groups, and ask for the members.

====  =====================================================================================================
code  what it does
====  =====================================================================================================
34    a heartbeat: the client, its groups and their subscriptions
35    a client leaves a group
38    the client ids of a group, local members included
46    checks a filter
====  =====================================================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from rmqclient.broker.clients import heartbeats
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.groups.room import GroupsRoom
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.request import Request
from rmqclient.broker.routes import NOTHING, SUB, Need, Route, need_of_group, need_of_topic, of_group
from rmqclient.broker.topics.topic_names import retry_topic
from rmqclient.broker.topics.topics import Topics
from rmqclient.errors import FilterError
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store.message_queue import is_name
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class MembershipRoom:
    """Takes heartbeats. Except for :meth:`close`, for the thread of the event loop."""

    def __init__(self, groups: GroupsRoom, topics: Topics, settings: GroupSettings, counters: Counters) -> None:
        self._groups = groups
        self._clients = groups.clients
        self._topics = topics
        self._settings = settings
        self._counters = counters
        self._pool = ThreadPoolExecutor(1, "rmq-serve-groups")

    def routes(self) -> Iterable[Route]:
        """Declare the requests about membership. A check of a filter (46) reads and changes nothing."""
        yield Route(RequestCode.HEART_BEAT, self._heartbeat, needs=_of_heartbeat, writes=False)
        yield Route(RequestCode.UNREGISTER_CLIENT, self._unregister, needs=of_group(), writes=False)
        yield Route(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self._members, needs=of_group(), writes=False)
        yield Route(RequestCode.CHECK_CLIENT_CONFIG, self._check, needs=NOTHING, writes=False, slow=True)

    def close(self) -> None:
        """End the thread that makes retry topics."""
        self._pool.shutdown()

    def _heartbeat(self, request: Request) -> Frame | None:
        try:
            return self._taken_in(request)
        except AnswerError as error:
            raise self._refused(request, error) from None

    def _refused(self, request: Request, error: AnswerError) -> AnswerError:
        text = f"client {request.peer.remote}: a heartbeat is refused: {error.remark}"
        self._counters.refuse(Refusal.HEARTBEAT, text)
        return error

    def _taken_in(self, request: Request) -> Frame | None:
        self._groups.start()
        if self._clients.repeats(request.peer, request.body):
            return request.success()
        heartbeat = heartbeats.read(request.body)
        groups = [each.group for each in heartbeat.consumers]
        for group in groups:
            self._settings.auto_create(group, request.peer.remote)
        is_read_only = self._groups.is_read_only
        missing = [
            group
            for group in groups
            if not is_read_only and is_name(topic := retry_topic(group)) and topic not in self._topics.made()
        ]
        if not missing:
            return self._beat(request, heartbeat)
        loop = asyncio.get_running_loop()

        def make() -> None:
            for group in missing:
                self._topics.create_retry(group, self._settings.settings(group).retry_queues)

        def made(error: BaseException | None) -> None:
            if error is not None:
                request.answer(request.failure(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} {error}"))
            elif request.peer.is_open:
                request.answer(self._beat_at_last(request, heartbeat))

        future = self._pool.submit(make)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(made, done.exception()))
        return None

    def _beat_at_last(self, request: Request, heartbeat: bodies.Heartbeat) -> Frame:
        """Take a heartbeat whose topics had to be made. The client is answered in any case."""
        try:
            return self._beat(request, heartbeat)
        except AnswerError as error:
            self._refused(request, error)
            return request.failure(error.code, error.remark or str(error))
        except Exception as error:  # noqa: BLE001 - there is no caller to raise to
            _log.exception("the heartbeat of %s failed", request.peer.remote)
            return request.failure(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} {error}")

    def _beat(self, request: Request, heartbeat: bodies.Heartbeat) -> Frame:
        frame = request.frame
        for group in sorted(self._clients.beat(request.peer, heartbeat, frame.language, frame.version)):
            self._groups.announce(group, anyway=True)
        self._clients.remember(request.peer, request.body, heartbeat)
        return request.success()

    def _unregister(self, request: Request) -> Frame:
        fields = request.fields
        self._clients.leave(request.peer, fields.get("producerGroup"), fields.get("consumerGroup"))
        return request.success()

    def _members(self, request: Request) -> Frame:
        group = request.fields["consumerGroup"]
        consumer = self._clients.consumers.find(group, request.peer)
        if consumer is not None:
            consumer.asked_members_at = consumer.seen_at = self._clients.ran_s()
        ids = self._groups.ids(group)
        if not ids:
            return request.failure(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return request.success(bodies.ConsumerIds(ids).encode())

    def _check(self, request: Request) -> Frame:
        """Check a filter. [ClientManageProcessor.checkClientConfig]"""
        check = bodies.ClientConfigCheck.decode(request.body)
        heartbeats.check_subscription(check.group, check.subscription)
        kind = check.subscription.expression_type
        if kind in ("", "TAG"):
            return request.success()
        if kind != "SQL92":
            text = f"expressions of type {kind[:100]!r} are not known: give TAG or SQL92"
            return request.failure(ResponseCode.SUBSCRIPTION_PARSE_FAILED, text)
        from rmqclient.filters.sql92 import Sql92  # noqa: PLC0415 - few clients bring such an expression

        try:
            Sql92(check.subscription.expression)
        except FilterError as error:
            return request.failure(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return request.success()


def _of_heartbeat(request: Request) -> Iterator[Need]:
    for consumer in bodies.Heartbeat.decode(request.body).consumers:
        yield need_of_group(consumer.group)
        for subscription in consumer.subscriptions:
            yield need_of_topic(subscription.topic, SUB)
