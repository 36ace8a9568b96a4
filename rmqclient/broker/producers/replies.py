"""Replies: take replies by requests 324 and 325, and push them by request 326. [ReplyMessageProcessor of 4.9.7]

=====================  ======================  ========================================================================
the requester is       the replier is          the reply
=====================  ======================  ========================================================================
connected here         connected here          arrives by 325 and leaves by 326; a copy stays in the reply topic
connected here         a local process         is stored by it; :class:`ReplyWatch` finds it, and it leaves by 326
a local process        connected here          arrives by 325, and is stored where the requester looks for it
=====================  ======================  ========================================================================

As with a broker, the answer to 325 is a failure if the requester did not take the reply, although it is stored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Final

from rmqclient.backend.reply_topic import reply_queues
from rmqclient.broker.address import Address
from rmqclient.broker.producers.reply_watch import ReplyWatch
from rmqclient.broker.producers.requesters import PeerOf, Requesters
from rmqclient.broker.request import Handler, Peer, Request
from rmqclient.broker.sending.appends import Appends
from rmqclient.broker.sending.flushes import Flushes
from rmqclient.broker.sending.incoming import Incoming, text_of
from rmqclient.broker.sending.outcomes import refused, stored
from rmqclient.broker.sending.topic_checks import TopicChecks
from rmqclient.broker.settings import ServeSettings
from rmqclient.errors import QueueError
from rmqclient.local.backend import local_backend
from rmqclient.names import PRODUCER_GROUP
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request as request_of
from rmqclient.store import MessageQueue, MessageStore, ReceivedMessage, clock, java_hash
from rmqclient.store.settings.config_file import REPLY_SUFFIX

_PATIENCE_S: Final = 10.0
"""Seconds for which a requester may take to acknowledge a reply. [Broker2Client.callClient]"""
_LONGEST_ID: Final = 255
"""Bytes of a client id, at most; a reply to a longer one is not delivered."""
_DEFAULT_TTL_MS: Final = 3_000
_DEFAULT_TOPIC: Final = "TBW102"
_DEFAULT_QUEUES: Final = 4
_COMPRESSION: Final = 0x701
_LOCAL_CLIENT: Final = re.compile(r"[^@]+@[0-9]+#[0-9a-f]{8}")
"""A client id as this library makes it. [rmqclient.store.default_client_id]"""


class Replies:
    """Delivers replies to their requesters."""

    def __init__(
        self,
        store: MessageStore,
        settings: ServeSettings,
        checks: TopicChecks,
        appends: Appends,
        flushes: Flushes,
        peer_of: PeerOf,
        later: Callable[[Handler, Request], None],
    ) -> None:
        self._backend = local_backend(store)
        self._checks = checks
        self._appends = appends
        self._flushes = flushes
        self._requesters = Requesters(peer_of)
        self._later = later
        self._own: set[tuple[MessageQueue, int]] = set()
        """Replies that came by a request and stand in the watched topic; the watch must skip them."""
        self._topic = settings.cluster_name + REPLY_SUFFIX
        self._watch = ReplyWatch(store, self._topic, self._found)
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Push replies from the thread of this loop."""
        self._loop = loop
        self._watch.use(loop)

    def close(self) -> None:
        """End the thread."""
        self._watch.close()

    def expect(self, message: Incoming, peer: Peer) -> None:
        """Expect a reply to a request of a peer; call it before the request is stored. For any thread."""
        client_id = message.properties["REPLY_TO_CLIENT"]
        if len(client_id.encode()) > _LONGEST_ID:
            return
        self._requesters.note(client_id, peer)
        ttl = message.properties.get("TTL", "")
        ttl_ms = int(ttl) if ttl.isdecimal() and len(ttl) < 12 else _DEFAULT_TTL_MS
        self._watch.expect(client_id, ttl_ms / 1000)

    def reply(self, request: Request) -> Frame | None:
        """Answer request 324 or 325; a thread takes the first reply of a topic."""
        if not self._checks.is_open(request.fields["topic"]):
            self._later(self._make_topic, request)
            return None
        try:
            return self._pass_on(request)
        except QueueError as error:
            return refused(request, error)

    def _make_topic(self, request: Request) -> Frame | None:
        """Make the reply topic, on a thread of the pool; then continue on the loop's."""
        try:
            topic: str = request.fields["topic"]
            self._checks.queue_id(request)
            if topic.endswith(REPLY_SUFFIX):
                reply_queues(self._backend.topics, topic)
        except QueueError as error:
            return refused(request, error)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._answer_now, request)
        return None

    def _answer_now(self, request: Request) -> None:
        try:
            answer = self._pass_on(request)
        except QueueError as error:
            answer = refused(request, error)
        if answer is not None:
            request.answer(answer)

    def _pass_on(self, request: Request) -> Frame | None:
        """Push a reply, store it, and answer when both are done."""
        queue_id = self._checks.queue_id(request)
        reply = Incoming.of(request)
        reply.queue_id = queue_id
        client_id = reply.properties.get("REPLY_TO_CLIENT")
        if not client_id:
            failure = "reply message properties[REPLY_TO_CLIENT] is null"
            answer, end = self._stored(request, reply)
            return self._flushed(request, answer, end, failure)
        peer = self._requesters.peer(client_id)
        pushed = None if peer is None else _push(request.fields, reply)
        answer, end = self._stored(request, self._for_local_eyes(reply, client_id))
        if peer is None or pushed is None:
            is_there = _LOCAL_CLIENT.fullmatch(client_id)
            failure = "" if is_there else f"push reply message fail, channel of <{client_id}> not found."
            return self._flushed(request, answer, end, failure)

        def done(taken: Frame | None) -> None:
            is_taken = taken is not None and taken.code == ResponseCode.SUCCESS
            ready = self._flushed(request, answer, end, "" if is_taken else f"push reply message to {client_id}fail.")
            if ready is not None:
                request.answer(ready)

        peer.call(pushed, _PATIENCE_S, done)
        return None

    def _for_local_eyes(self, reply: Incoming, client_id: str) -> Incoming:
        """Return a reply with the queue and the tag of its client id, by which a local requester finds it."""
        if reply.topic.endswith(REPLY_SUFFIX):
            queues = self._backend.topics.queues(reply.topic)
            reply.queue_id = queues[abs(java_hash(client_id)) % len(queues)].queue_id
            reply.properties.setdefault("TAGS", client_id)
        return reply

    def _stored(self, request: Request, reply: Incoming) -> tuple[Frame, int]:
        """Store a reply; return the answer for success, and the log's end after it."""
        result = self._appends.append(reply)
        if reply.topic == self._topic and self._watch.is_at_work:
            self._own.add((result.queue, result.queue_offset))
        elif self._own:
            self._own.clear()
        assert result.offset_message_id is not None
        return stored(request, result.offset_message_id, reply.queue_id, result.queue_offset), result.commit_log_end

    def _flushed(self, request: Request, answer: Frame, end: int, failure: str) -> Frame | None:
        if failure:
            answer.code, answer.remark = ResponseCode.SYSTEM_ERROR.value, failure
        return self._flushes.when_flushed(request, answer, end)

    def _found(self, reply: ReceivedMessage) -> None:
        """Push a reply that a local process has stored."""
        place = (MessageQueue(reply.topic, reply.queue_id), reply.queue_offset)
        if place in self._own:
            self._own.discard(place)
            return
        peer = self._requesters.peer(reply.properties.get("REPLY_TO_CLIENT", ""))
        if peer is not None:
            peer.call(_push_of(reply, peer.local), _PATIENCE_S, _forget)


def _forget(taken: Frame | None) -> None:
    """Ignore the outcome: the reply stays in its topic."""
    del taken


def _push(fields: Mapping[str, object], reply: Incoming) -> Frame:
    """Return request 326 for a reply as it came."""
    names = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp")
    now = clock.wall_ms()
    return request_of(
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        reply.body,
        **{name: fields[name] for name in (*names, "flag")},
        properties=text_of({**reply.properties, "PUSH_REPLY_TIME": str(now)}),
        reconsumeTimes=reply.reconsume_times,
        unitMode=fields.get("unitMode", False),
        bornHost=str(reply.born_host),
        storeHost=str(reply.store_host),
        storeTimestamp=now,
    )


def _push_of(reply: ReceivedMessage, local: Address) -> Frame:
    """Return request 326 for a reply that is stored."""
    return request_of(
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        reply.stored_body,
        producerGroup=PRODUCER_GROUP,
        topic=reply.topic,
        defaultTopic=_DEFAULT_TOPIC,
        defaultTopicQueueNums=_DEFAULT_QUEUES,
        queueId=reply.queue_id,
        sysFlag=reply.sys_flag & _COMPRESSION,
        bornTimestamp=reply.born_timestamp,
        flag=reply.flag,
        properties=text_of({**reply.properties, "PUSH_REPLY_TIME": str(clock.wall_ms())}),
        reconsumeTimes=0,
        unitMode=False,
        bornHost=str(local),
        storeHost=str(local),
        storeTimestamp=reply.store_timestamp,
    )
