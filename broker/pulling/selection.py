"""Selection: which messages of a topic a pull wants.

Tags are compared by their Java hashes, which stand in the entries of the consume queue. So a message with another tag
of the same hash is sent, too, and the client drops it, as with a stock broker (DefaultMessageFilter). SQL92 is judged
by the properties of the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rmqclient.errors import FilterError
from rmqclient.filters.sql92 import Sql92
from rmqclient.remoting.bodies import Subscription
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.store import java_hash

TAG = "TAG"
SQL92 = "SQL92"
EVERYTHING = ("", "*")
"""Expressions over tags that take every message. [SubscriptionData.SUB_ALL]"""

_LONGEST_EXPRESSION = 4_096
_LOW_BITS = 0xFFFF_FFFF
_BLANKS = "".join(map(chr, range(0x21)))  # what Java's String.trim removes
_KEPT = 1_024


@dataclass(frozen=True, slots=True)
class Selection:
    """What a pull wants: any of some tags, what an expression matches, or everything."""

    codes: frozenset[int] = frozenset()
    """Low 32 bits of the hashes of the tags; empty for every tag."""

    sql: Sql92 | None = None
    """What the properties of a message must match."""


ALL = Selection()


def selection_of(subscription: Subscription) -> Selection:
    """Return what a subscription selects.

    Raises AnswerError: 23 for an expression that cannot be parsed, 1 for a filter class.
    """
    if subscription.class_filter_mode:
        raise AnswerError(
            ResponseCode.SYSTEM_ERROR,
            f"the subscription to {subscription.topic} names a filter class, which is code of the consumer: this "
            "broker filters by TAG and SQL92",
        )
    kind = subscription.expression_type or TAG
    if kind == TAG and subscription.codes and subscription.expression not in EVERYTHING:
        return Selection(frozenset(code & _LOW_BITS for code in subscription.codes))
    return _selection(subscription.expression, kind)


@lru_cache(_KEPT)
def _selection(expression: str, kind: str) -> Selection:
    """Compile an expression once; the last ones are kept."""
    if len(expression) > _LONGEST_EXPRESSION:
        raise _unreadable(expression, f"{len(expression):,} characters, and at most {_LONGEST_EXPRESSION:,} are read")
    if kind == TAG:
        return _tags(expression)
    if kind != SQL92:
        raise _unreadable(expression, f"its type is {kind:.40}, and TAG and SQL92 are known")
    try:
        return Selection(sql=Sql92(expression))
    except FilterError as error:
        raise _unreadable(expression, str(error)) from error


def _tags(expression: str) -> Selection:
    """As FilterAPI.buildSubscriptionData: empty alternatives are skipped."""
    if expression in EVERYTHING:
        return ALL
    tags = [tag for part in expression.split("||") if (tag := part.strip(_BLANKS))]
    if not tags:
        raise _unreadable(expression, "it names no tag")
    return Selection(frozenset(java_hash(tag) & _LOW_BITS for tag in tags))


def _unreadable(expression: str, reason: str) -> AnswerError:
    return AnswerError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: {expression[:80]!r}: {reason}",
    )
