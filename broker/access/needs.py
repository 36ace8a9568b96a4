"""Needs: the topics and groups that a request is about, and what it wants to do with them. [PlainAccessValidator]

A stock broker of 4.9 asks nothing for batches (320), replies (324, 325), reads of a message by its place (33), offsets
(14, 29 to 32), locks (41, 42) and decisions about transactions (37). Here they need what the like of them needs. A
message that is read (33), given back (36) or decided (37) is named by its place in the log: the handler asks for the
topic that it is of when it has read it (:attr:`Request.check_topic`), whatever topic the request names.

Topics in which messages of all topics stand together need a rule that names them: no default opens them. A group's
retry topic and its dead letters are the group itself. A request that is in no list here is not answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rmqclient.broker.access.accounts import Permission
from rmqclient.broker.access.codes import FOR_ADMINISTRATORS, FOR_ALL
from rmqclient.broker.request import Request
from rmqclient.broker.sending.incoming import ORIGINS, texts_of_batch
from rmqclient.broker.topics.system_topics import OF_ALL_TOPICS
from rmqclient.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rmqclient.remoting.bodies import Heartbeat, LockRequest
from rmqclient.remoting.codes import RequestCode as Code

PUB, SUB, ANY = Permission.PUB, Permission.SUB, Permission.PUB | Permission.SUB


class Need(NamedTuple):
    """One topic or group. One of the bits of ``permission`` is enough."""

    is_group: bool
    name: str
    permission: Permission

    @property
    def is_of_others(self) -> bool:
        """Whether messages of all topics stand in this topic."""
        return not self.is_group and self.name in OF_ALL_TOPICS


def needs_of(request: Request) -> Iterator[Need]:
    """Return what a request needs, in no order. Raises HeaderError and BodyError for what cannot be read."""
    found = _NEEDS.get(request.code)
    return found(request) if found is not None else iter(())


def has_needs(code: int) -> bool:
    """Return whether it was said who may ask a request; nobody may ask any other."""
    return code in _NEEDS or code in FOR_ADMINISTRATORS or code in FOR_ALL


def need_of_topic(name: str, permission: Permission) -> Need:
    """Return what is needed for a topic. A group's retry topic is the group itself, and so are its dead letters."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return _group(name.removeprefix(prefix))
    return Need(is_group=False, name=name, permission=permission)


def _group(name: str) -> Need:
    return Need(is_group=True, name=name, permission=SUB)


def _of_topic(permission: Permission) -> Callable[[Request], Iterator[Need]]:
    def needs(request: Request) -> Iterator[Need]:
        yield need_of_topic(request.fields["topic"], permission)

    return needs


def _of_group(field: str = "consumerGroup") -> Callable[[Request], Iterator[Need]]:
    def needs(request: Request) -> Iterator[Need]:
        if group := request.fields.get(field):
            yield _group(group)

    return needs


def _of_both(request: Request) -> Iterator[Need]:
    yield need_of_topic(request.fields["topic"], SUB)
    yield _group(request.fields["consumerGroup"])


def _sent_back(request: Request) -> Iterator[Need]:
    if topic := request.fields.get("originTopic"):
        yield need_of_topic(topic, PUB)
    yield _group(request.fields["group"])


def _heartbeat(request: Request) -> Iterator[Need]:
    for consumer in Heartbeat.decode(request.body).consumers:
        yield _group(consumer.group)
        for subscription in consumer.subscriptions:
            yield need_of_topic(subscription.topic, SUB)


def _locks(request: Request) -> Iterator[Need]:
    asked = LockRequest.decode(request.body)
    yield _group(asked.group)
    for queue in asked.queues:
        yield need_of_topic(queue.topic, SUB)


def _sent(request: Request) -> Iterator[Need]:
    """Return what a send needs. A failed message goes back to where it says that it failed, if a person replays it.

    A consumer that may only read sends what failed to its retry topic. The handler asks for more, unless it is a copy.
    """
    topic: str = request.fields["topic"]
    yield need_of_topic(topic, PUB)
    of_origin = ANY if topic.startswith(RETRY_PREFIX) else PUB
    for origin in _origins(request):
        yield need_of_topic(origin, of_origin)


def _origins(request: Request) -> Iterator[str]:
    """Return every topic that a message of a send says that it failed in, whichever counts."""
    fields = request.fields
    texts = [fields.get("properties") or ""]
    is_batch = request.code == Code.SEND_BATCH_MESSAGE or fields.get("batch")
    if is_batch and b"_TOPIC\x01" in request.body:
        texts += texts_of_batch(request.body)
    for text in texts:
        if "_TOPIC\x01" in text:
            pairs = (pair.partition("\x01") for pair in text.split("\x02"))
            yield from (value for name, _, value in pairs if name in ORIGINS and value)


def _entries(request: Request) -> Iterator[Need]:
    yield need_of_topic(request.fields.get("topic") or "", SUB)


_NEEDS: Final[dict[int, Callable[[Request], Iterator[Need]]]] = {
    Code.SEND_MESSAGE: _sent,
    Code.SEND_MESSAGE_V2: _sent,
    Code.SEND_BATCH_MESSAGE: _sent,
    Code.SEND_REPLY_MESSAGE: _sent,
    Code.SEND_REPLY_MESSAGE_V2: _sent,
    Code.RECALL_MESSAGE: _of_topic(PUB),
    Code.CONSUMER_SEND_MSG_BACK: _sent_back,
    Code.END_TRANSACTION: lambda _: iter(()),  # the handler asks
    Code.VIEW_MESSAGE_BY_ID: lambda _: iter(()),  # the handler asks
    Code.PULL_MESSAGE: _of_both,
    Code.LITE_PULL_MESSAGE: _of_both,
    Code.QUERY_CONSUMER_OFFSET: _of_both,
    Code.UPDATE_CONSUMER_OFFSET: _of_both,
    Code.QUERY_MESSAGE: _of_topic(SUB),
    Code.QUERY_CONSUME_QUEUE: _entries,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _of_topic(ANY),
    Code.GET_MAX_OFFSET: _of_topic(ANY),
    Code.GET_MIN_OFFSET: _of_topic(ANY),
    Code.GET_EARLIEST_MSG_STORETIME: _of_topic(ANY),
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _of_group(),
    Code.GET_CONSUMER_LIST_BY_GROUP: _of_group(),
    Code.LOCK_BATCH_MQ: _locks,
    Code.UNLOCK_BATCH_MQ: _locks,
}
