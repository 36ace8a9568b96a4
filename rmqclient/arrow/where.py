"""Where: a condition that a read applies before it looks at a record, by the option ``where``.

::

    offset BETWEEN 100 AND 199 AND tags IN ('paid', 'refunded')

Comparisons joined by AND, in the grammar of :mod:`rmqclient.filters.sql92_grammar`:

=========================  =====================================
column                     comparisons
=========================  =====================================
``topic``, ``tags``        ``=`` and ``IN`` with strings
``partition``, ``offset``  ``=``, ``<`` and so on, ``BETWEEN``
=========================  =====================================

This is an option of the read, and not taken from the conditions of a query. Spark could hand those over, with
``spark.sql.python.filterPushdown.enabled``, but it keeps what it handed over for every later use of the same DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from rmqclient.arrow.ranges import Ranges
from rmqclient.filters.sql92_grammar import parse
from rmqclient.filters.sql92_tree import And, Equal, In, Kind, Literal, Negative, Node, Ordered, Property

_T = TypeVar("_T")

_ALL = range(1 << 63)
_TEXTS = ("topic", "tags")
_NUMBERS = ("partition", "offset")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Where:
    """Conditions that all rows meet. None, or the widest range, stands for no condition."""

    topics: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    partitions: range = _ALL
    offsets: range = _ALL

    def apply(self, wanted: Ranges) -> Ranges:
        """Return the parts of the ``wanted`` ranges that may hold matching messages; tags are compared later."""
        if self.tags is not None and not self.tags:
            return {}
        found = {
            queue: _common(offsets, self.offsets)
            for queue, offsets in wanted.items()
            if queue.queue_id in self.partitions and (self.topics is None or queue.topic in self.topics)
        }
        return {queue: offsets for queue, offsets in found.items() if offsets}

    def with_tags(self, tags: frozenset[str]) -> Where:
        """Return the conditions with one more, that the tag is one of ``tags``; no tags mean no condition."""
        return replace(self, tags=_both(self.tags, tags)) if tags else self


def parse_where(text: str | None) -> Where:
    """Return the conditions that ``text`` states; None states none. Raises FilterError, ValueError."""
    found = Where()
    for each in _conditions(parse(text)) if text is not None else ():
        found = _narrowed(found, each, text or "")
    return found


def _conditions(node: Node) -> Iterator[Node]:
    if isinstance(node, And):
        for each in node.operands:
            yield from _conditions(each)
    else:
        yield node


def _narrowed(where: Where, each: Node, text: str) -> Where:
    if isinstance(each, In) and each.name in _TEXTS and not each.negated:
        return _with_texts(where, each.name, each.strings)
    if isinstance(each, Equal | Ordered):
        left, right = each.left, each.right
        operator = each.operator if isinstance(each, Ordered) else "="
        if isinstance(right, Property):
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        if isinstance(left, Property):
            value = _value(right)
            if isinstance(value, str) and left.name in _TEXTS and operator == "=":
                return _with_texts(where, left.name, frozenset({value}))
            if isinstance(value, int) and left.name in _NUMBERS:
                return _with_bounds(where, left.name, operator, value)
    raise ValueError(
        f"option where={text[:200]}: give comparisons joined by AND: topic and tags by = and IN with strings, "
        "partition and offset by =, <, <=, >, >= and BETWEEN with whole numbers. Times have options, "
        "such as startingTimestamp. Spark applies all other conditions: frame.where(...)"
    )


def _value(node: Node) -> str | int | None:
    """Return a string or a whole number; None for anything else."""
    if isinstance(node, Negative):
        value = _value(node.operand)
        return -value if isinstance(value, int) else None
    if not isinstance(node, Literal) or node.kind not in (Kind.STRING, Kind.INTEGER, Kind.LONG):
        return None
    return node.value if isinstance(node.value, str | int) else None


def _with_texts(where: Where, name: str, values: frozenset[str]) -> Where:
    if name == "topic":
        return replace(where, topics=_both(where.topics, values))
    return replace(where, tags=_both(where.tags, values))


def _with_bounds(where: Where, name: str, operator: str, value: int) -> Where:
    bounds = {
        "=": range(max(0, value), max(0, value + 1)),
        "<": range(max(0, value)),
        "<=": range(max(0, value + 1)),
        ">": range(max(0, value + 1), _ALL.stop),
        ">=": range(max(0, value), _ALL.stop),
    }[operator]
    if name == "partition":
        return replace(where, partitions=_common(where.partitions, bounds))
    return replace(where, offsets=_common(where.offsets, bounds))


def _both(one: frozenset[_T] | None, other: frozenset[_T]) -> frozenset[_T]:
    return other if one is None else one & other


def _common(one: range, other: range) -> range:
    start = max(one.start, other.start)
    return range(start, max(start, min(one.stop, other.stop)))
