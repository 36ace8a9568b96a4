"""Relays: requests of tools to one consumer, forwarded over its connection. Its answer is returned unchanged.

A local consumer has no connection. The server answers for it from shared memory, and it takes no messages on demand.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from rmqclient.broker.administration.connections import LocalMembers
from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.clients.member import Consumer
from rmqclient.broker.request import Request
from rmqclient.broker.routes import ADMINISTRATOR, Route, of_group, of_topic_and_group
from rmqclient.broker.topics.system_topics import topic_of
from rmqclient.remoting.bodies import ConsumerStatus, ProcessQueueInfo, RunningInfo
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError, BodyError
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request as new_request
from rmqclient.remoting.table import response
from rmqclient.store import MemberInfo, MessageQueue, MessageStore, TagSet
from rmqclient.store.wire import parse_offset_id

TIMEOUT_S: Final = 10.0
"""Seconds within which a consumer has to answer. [Broker2Client.callClient]"""

_LEAST_VERSION: Final = 62
"""Number of the first version that answers these requests. [V3_1_8_SNAPSHOT]"""

_MOST_RECORD_BYTES: Final = 16 << 20


class Relays:
    """Forwards requests to consumers. For the thread of the event loop."""

    def __init__(self, store: MessageStore, clients: Clients, local: LocalMembers, broker_name: str) -> None:
        self._store = store
        self._clients = clients
        self._local = local
        self._broker_name = broker_name

    def routes(self) -> Iterable[Route]:
        """Declare the forwarded requests. No thread waits for the consumer's answer."""
        yield Route(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running, needs=of_group(), writes=False)
        yield Route(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume, needs=ADMINISTRATOR, writes=False)
        yield Route(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            self._status,
            needs=of_topic_and_group("group"),
            writes=False,
        )

    def _running(self, request: Request) -> Frame | None:
        fields = request.fields
        group, client_id = fields["consumerGroup"], fields["clientId"]
        local = [member for member in self._local.of_group(group) if member.client_id == client_id]
        if local:
            return request.success(self._running_info(request, group, local).encode(as_fastjson=True))
        member = self._online(group, client_id)
        self._hand_on(request, member, new_request(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields))
        return None

    def _consume(self, request: Request) -> Frame | None:
        """Have a consumer handle a message, whatever its queue and whichever member had it before."""
        fields = request.fields
        group, client_id = fields["consumerGroup"], fields.get("clientId", "")
        if any(member.client_id == client_id for member in self._local.of_group(group)):
            raise AnswerError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> is a local one: it takes no message"
            )
        member = self._online(group, client_id)
        record = self._record(request, fields.get("msgId", ""))
        wanted = {**fields, "brokerName": self._broker_name}
        self._hand_on(request, member, new_request(RequestCode.CONSUME_MESSAGE_DIRECTLY, record, **wanted))
        return None

    def _status(self, request: Request) -> Frame | None:
        """Ask every member of a group, or one, for its progress in a topic."""
        fields = request.fields
        topic, group, wanted = fields["topic"], fields["group"], fields.get("clientAddr") or None
        members = [each for each in self._clients.consumers.of(group) if wanted in (None, each.client_id)]
        if not members:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{group}]")
        gathered = _Gathered(request, len(members))
        for member in members:
            asked = new_request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, topic=topic, group=group)
            member.peer.call(asked, TIMEOUT_S, partial(gathered.take, member.client_id))
        return None

    def _hand_on(self, request: Request, member: Consumer, asked: Frame) -> None:
        named = f"consumer <{member.group}> <{member.client_id}>"

        def done(answer: Frame | None) -> None:
            if answer is None:
                result = request.failure(ResponseCode.CONSUME_MSG_TIMEOUT, f"{named} Timeout: {TIMEOUT_S:.0f} s")
            else:
                result = response(request.frame, answer.code, answer.body, answer.remark)
            request.answer(result)

        member.peer.call(asked, TIMEOUT_S, done)

    def _online(self, group: str, client_id: str) -> Consumer:
        member = self._clients.consumers.named(group, client_id)
        if member is None:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if member.version < _LEAST_VERSION:
            raise AnswerError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, please upgrade it to "
                "V3_1_8_SNAPSHOT",
            )
        return member

    def _record(self, request: Request, message_id: str) -> bytes:
        """Return the record of a stored message, by its offset message id."""
        try:
            found = self._store.messages.read(parse_offset_id(message_id).commit_log_offset)
        except (LookupError, ValueError) as error:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, f"message {message_id[:60]!r}: {error}") from None
        request.check_topic(topic_of(found), writes=False)
        reader = self._store.grants.record_reader(MessageQueue(found.topic, found.queue_id))
        record, *_ = reader.read(
            found.queue_offset, TagSet(()), most_messages=1, most_bytes=_MOST_RECORD_BYTES, most_looked_at=1
        )
        return record

    def _running_info(self, request: Request, group: str, members: list[MemberInfo]) -> RunningInfo:
        """Describe a local consumer from shared memory: its queues, their offsets and their waiting messages."""
        keys = {member.key for member in members}
        queues = {}
        for slot in self._store.groups:
            if slot.group in {member.group for member in members} and (
                (slot.load("owner"), slot.load("owner_incarnation")) in keys
            ):
                queue = self._store.topics.queue(slot.queue_slot)
                end = self._store.topics.max_offset(queue)
                queues[queue._replace(broker_name=self._broker_name)] = ProcessQueueInfo(
                    commit_offset=slot.committed_offset,
                    cached_min_offset=slot.committed_offset,
                    cached_max_offset=end,
                    cached_count=slot.acknowledged_bits().bit_count(),
                    locked=True,
                )
        properties = {
            "PROP_CLIENT_VERSION": "V4_9_7",
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": "false",
            "PROP_CONSUMER_START_TIMESTAMP": "0",
            "PROP_NAMESERVER_ADDR": str(request.peer.local),
            "PROP_THREADPOOL_CORE_SIZE": "0",
            "process": str(members[0].pid),
        }
        return RunningInfo(properties, tuple(self._local.subscriptions(group).values()), queues)


class _Gathered:
    """Collects the answers of several members and sends them after the last one, without those of silent members."""

    def __init__(self, request: Request, count: int) -> None:
        self._request = request
        self._missing = count
        self._offsets: dict[str, dict[MessageQueue, int]] = {}

    def take(self, client_id: str, answer: Frame | None) -> None:
        """Take the answer of one member."""
        self._missing -= 1
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            try:
                self._offsets[client_id] = ConsumerStatus.decode(answer.body).offsets
            except BodyError:
                self._offsets[client_id] = {}
        if not self._missing:
            body = ConsumerStatus({}, self._offsets).encode(as_fastjson=True)
            self._request.answer(self._request.success(body))
