"""Selection: the messages of a topic that a pull wants.

Tags are compared by their Java hashes, which the entries of the consume queue have, and then by their text in the
record. RocketMQ's broker compares the hashes only and leaves the text to the client (DefaultMessageFilter). SQL92 is
evaluated on the properties of the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rmqclient.errors import FilterError
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.store import ReceivedMessage, TagSet

TAG = "TAG"
SQL92 = "SQL92"
EVERYTHING = ("", "*")
"""Expressions over tags that take every message. [SubscriptionData.SUB_ALL]"""

_LONGEST_EXPRESSION = 4_096
_BLANKS = "".join(map(chr, range(0x21)))  # what Java's String.trim removes
_KEPT = 1_024


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter: some tags, an expression, or everything."""

    tag_set: TagSet
    most_looked_at: int
    """Messages that one look skips, at most: about a millisecond of the event loop. [maxFilterMessageCount]"""


MOST_JUDGED = 256
"""Records whose properties one look reads, at most."""

MOST_COMPARED = 50_000
"""Comparisons of a tag's hash with an entry in one look, at most."""

ALL = Selection(TagSet(()), MOST_COMPARED)


def selection_of(subscription: bodies.Subscription) -> Selection:
    """Return the selection of a subscription.

    Raises AnswerError: 23 for an expression that cannot be parsed, 1 for a filter class.
    """
    if subscription.class_filter_mode:
        raise AnswerError(
            ResponseCode.SYSTEM_ERROR,
            f"the subscription to {subscription.topic} names a filter class, which is code of the consumer: this "
            "broker filters by TAG and SQL92",
        )
    return _selection(subscription.expression, subscription.expression_type or TAG)


@lru_cache(_KEPT)
def _selection(expression: str, kind: str) -> Selection:
    """Compile an expression; recent ones are cached."""
    if len(expression) > _LONGEST_EXPRESSION:
        raise _unreadable(expression, f"{len(expression):,} characters, and at most {_LONGEST_EXPRESSION:,} are read")
    if kind == TAG:
        return _tags(expression)
    if kind != SQL92:
        raise _unreadable(expression, f"its type is {kind:.40}, and TAG and SQL92 are known")
    from rmqclient.filters.sql92 import Sql92  # noqa: PLC0415 - few clients bring such an expression

    try:
        sql = Sql92(expression)
    except FilterError as error:
        raise _unreadable(expression, str(error)) from error

    def passes(message: ReceivedMessage) -> bool:
        return sql.matches(message.some_properties(sql.names))

    return Selection(TagSet((), passes), MOST_JUDGED)


def _tags(expression: str) -> Selection:
    """As FilterAPI.buildSubscriptionData: empty alternatives are skipped."""
    if expression in EVERYTHING:
        return ALL
    tags = {tag for part in expression.split("||") if (tag := part.strip(_BLANKS))}
    if not tags:
        raise _unreadable(expression, "it names no tag")
    return Selection(TagSet(tags), MOST_COMPARED // len(tags))


def _unreadable(expression: str, reason: str) -> AnswerError:
    return AnswerError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: {expression[:80]!r}: {reason}",
    )
