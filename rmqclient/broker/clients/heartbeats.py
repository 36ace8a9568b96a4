"""Heartbeats: a client's producers and consumers, parsed and checked against limits.

Missing values are filled in: the C++ client sends no tags and no type of expression, and an empty group name for no
group.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rmqclient.broker.stored_names import MOST_CLIENT_BYTES, MOST_GROUP_CHARACTERS, is_group
from rmqclient.broker.topics.topic_names import retry_topic
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.store import java_hash
from rmqclient.store.message_queue import is_name
from rmqclient.store.waiting.transaction_log import GROUP as TRANSACTION_GROUP

MOST_BYTES = 1 << 20
"""Bytes of a heartbeat, at most: it is kept while its client is connected."""
MOST_GROUPS = 256
"""Producer and consumer groups of one client, at most."""
MOST_SUBSCRIPTIONS = 256
"""Topics of one consumer group, at most."""
MOST_EXPRESSION_CHARACTERS = 32_767

PRODUCER_BYTES = 1_024
"""Bytes of memory of one producer, rounded up."""
_CONSUMER_BYTES = 1_024
_SUBSCRIPTION_BYTES = 768
_LETTER_BYTES = 32

_SEPARATOR = "||"
_EVERYTHING = "*"
_BLANKS = "".join(map(chr, range(0x21)))  # what Java's String.trim removes


def read(body: bytes) -> bodies.Heartbeat:
    """Parse the body of request 34. Raises BodyError, and AnswerError beyond the limits."""
    if len(body) > MOST_BYTES:
        raise refusal(f"a heartbeat of {len(body):,} bytes; at most {MOST_BYTES:,}")
    heartbeat = bodies.Heartbeat.decode(body)
    check_client(heartbeat.client_id)
    producers = tuple(each for each in heartbeat.producers if each.group)
    consumers = tuple(_completed(each) for each in heartbeat.consumers if each.group)
    groups = len(producers) + len(consumers)
    if groups > MOST_GROUPS:
        raise refusal(f"client {heartbeat.client_id!r} is in {groups} groups; at most {MOST_GROUPS}")
    for producer in producers:
        check_group(producer.group)
    return replace(heartbeat, producers=producers, consumers=consumers)


def size_of(heartbeat: bodies.Heartbeat) -> int:
    """Return the bytes of memory of a heartbeat, rounded up."""
    consumers = sum(size_of_consumer(data.subscriptions) for data in heartbeat.consumers)
    return PRODUCER_BYTES * len(heartbeat.producers) + consumers


def size_of_consumer(subscriptions: Collection[bodies.Subscription]) -> int:
    """Return the bytes of memory of a consumer, rounded up; each tag of an expression is an object."""
    expressions = sum(len(each.expression) for each in subscriptions)
    return _CONSUMER_BYTES + _SUBSCRIPTION_BYTES * len(subscriptions) + _LETTER_BYTES * expressions


def check_client(client_id: str) -> str:
    """Return a client id. Raises AnswerError unless it has 1 to 1,024 bytes and is printable."""
    size = len(client_id.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= MOST_CLIENT_BYTES or not client_id.isprintable():
        text = f"client id {client_id[:200]!r} has {size} bytes: give 1 to {MOST_CLIENT_BYTES:,}, all printable"
        raise refusal(text)
    return client_id


def check_group(group: str) -> str:
    """Return the name of a group. Raises AnswerError for an invalid one."""
    if not is_group(group):
        raise refusal(f"the group name {group[:200]!r} is illegal: give 1 to {MOST_GROUP_CHARACTERS} of %|a-zA-Z0-9_-")
    if group == TRANSACTION_GROUP:
        raise refusal(f"the group {group} says how far transactions are, and has no members")
    return group


def completed(subscription: bodies.Subscription) -> bodies.Subscription:
    """Return a subscription with the tags of its expression and their hashes. [FilterAPI]"""
    if subscription.expression_type not in ("", "TAG"):
        return subscription
    tags = tags_of(subscription.expression)
    codes = tuple(sorted({java_hash(tag) for tag in tags}))
    return replace(subscription, expression_type="TAG", tags=tags, codes=codes)


def tags_of(expression: str) -> tuple[str, ...]:
    """Return the distinct tags of an expression, sorted; empty for all messages. [FilterAPI.buildSubscriptionData]"""
    if expression.strip(_BLANKS) in ("", _EVERYTHING):
        return ()
    return tuple(sorted({tag.strip(_BLANKS) for tag in expression.split(_SEPARATOR)} - {""}))


def _completed(data: bodies.ConsumerData) -> bodies.ConsumerData:
    check_group(data.group)
    if len(data.subscriptions) > MOST_SUBSCRIPTIONS:
        count = len(data.subscriptions)
        raise refusal(f"group {data.group!r} subscribes to {count} topics; at most {MOST_SUBSCRIPTIONS}")
    subscriptions = [each for each in data.subscriptions if not _is_of_no_topic(data.group, each)]
    for each in subscriptions:
        check_subscription(data.group, each)
    return replace(data, subscriptions=tuple(map(completed, subscriptions)))


def _is_of_no_topic(group: str, subscription: bodies.Subscription) -> bool:
    """Whether it is to the retry topic of a group whose name is too long for a topic. A broker accepts it, too."""
    return subscription.topic == retry_topic(group) and not is_name(subscription.topic)


def check_subscription(group: str, subscription: bodies.Subscription) -> None:
    """Raise AnswerError for an invalid name of a topic, and for an expression that is too long."""
    check_topic(group, subscription.topic)
    size = len(subscription.expression)
    if size > MOST_EXPRESSION_CHARACTERS:
        raise refusal(
            f"group {group!r}, topic {subscription.topic!r}: the expression has {size:,} characters; at most "
            f"{MOST_EXPRESSION_CHARACTERS:,}"
        )


def check_topic(group: str, topic: str) -> None:
    """Raise AnswerError for an invalid name of a topic."""
    if not is_name(topic):
        raise refusal(f"group {group!r}: the topic name {topic[:200]!r} is illegal")


def refusal(text: str) -> AnswerError:
    """Return the error for a request beyond a limit, or with an invalid name."""
    return AnswerError(ResponseCode.SYSTEM_ERROR, text)
