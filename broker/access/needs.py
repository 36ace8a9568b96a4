"""Needs: the topics and groups that a request is about, and what it wants to do with them. [PlainAccessValidator]

A stock broker of 4.9 asks nothing for batches (320), replies (324, 325), reads of a message by its place (33), offsets
(14, 29 to 32), locks (41, 42) and decisions about transactions (37). Here they need what the like of them needs. A
message that is given back (36) or decided (37) is named by its place in the log: the handler asks for its topic when it
has read it (:attr:`Request.check_topic`), whatever topic the request names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rmqclient.broker.access.accounts import Permission
from rmqclient.broker.request import Request
from rmqclient.remoting.bodies import Heartbeat, LockRequest
from rmqclient.remoting.codes import RequestCode as Code

_RETRY: Final = "%RETRY%"
PUB, SUB, ANY = Permission.PUB, Permission.SUB, Permission.PUB | Permission.SUB


class Need(NamedTuple):
    """One topic or group. One of the bits of ``permission`` is enough."""

    is_group: bool
    name: str | None
    """None when it is known only after the request is done: the account's default decides."""
    permission: Permission


def needs_of(request: Request) -> Iterator[Need]:
    """Return what a request needs, in no order. Raises HeaderError and BodyError for what cannot be read."""
    found = _NEEDS.get(request.code)
    return found(request) if found is not None else iter(())


def need_of_topic(name: str | None, permission: Permission) -> Need:
    """Return what is needed for a topic. A group's retry topic is the group itself."""
    if name is not None and name.startswith(_RETRY):
        return _group(name.removeprefix(_RETRY))
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


def _any_message(request: Request) -> Iterator[Need]:
    del request
    yield need_of_topic(None, SUB)


_NEEDS: Final[dict[int, Callable[[Request], Iterator[Need]]]] = {
    Code.SEND_MESSAGE: _of_topic(PUB),
    Code.SEND_MESSAGE_V2: _of_topic(PUB),
    Code.SEND_BATCH_MESSAGE: _of_topic(PUB),
    Code.SEND_REPLY_MESSAGE: _of_topic(PUB),
    Code.SEND_REPLY_MESSAGE_V2: _of_topic(PUB),
    Code.RECALL_MESSAGE: _of_topic(PUB),
    Code.CONSUMER_SEND_MSG_BACK: _sent_back,
    Code.PULL_MESSAGE: _of_both,
    Code.LITE_PULL_MESSAGE: _of_both,
    Code.QUERY_CONSUMER_OFFSET: _of_both,
    Code.UPDATE_CONSUMER_OFFSET: _of_both,
    Code.QUERY_MESSAGE: _of_topic(SUB),
    Code.VIEW_MESSAGE_BY_ID: _any_message,
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
