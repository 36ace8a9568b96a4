"""Message filter: all filters of one subscription, and how they are made.

The languages of filters are imported when the first filter is made: most handlers want tags alone.
"""

# ruff: noqa: PLC0415 - imports inside functions, for the reason above

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rmqclient.errors import FilterError
from rmqclient.filters.tag import TagFilter, parse_tags
from rmqclient.message import ReceivedMessage
from rmqclient.names import RETRY_PREFIX
from rmqclient.store import TagSet
from rmqclient.store.errors import BodyUnreadable, NotInstalled

if TYPE_CHECKING:
    from rmqclient.filters.body import BodyFilter
    from rmqclient.filters.sql92 import Sql92

Filter: TypeAlias = "Sql92 | BodyFilter"
"""What :func:`sql` and :func:`jmespath` return."""


def sql(expression: str) -> Sql92:
    """Return a filter by the properties of a message, such as ``sql("region = 'eu' AND total > 100")``.

    The expression is SQL92 as a RocketMQ broker reads it (:mod:`rmqclient.filters.sql92`). Raises FilterError, which
    names the column, if it cannot be parsed.
    """
    from rmqclient.filters.sql92 import Sql92

    return Sql92(expression)


def jmespath(expression: str) -> BodyFilter:
    """Return a filter by a message's JSON body, such as ``jmespath("total > `100`")``.

    The expression is JMESPath (:mod:`rmqclient.filters.body`); a body that is not JSON does not pass. Raises
    FilterError, which names the column, if it cannot be parsed.
    """
    from rmqclient.filters.body import BodyFilter

    return BodyFilter(expression)


def filters_of(given: Filter | Sequence[Filter] | None) -> tuple[Filter, ...]:
    """Return the filters of a handler as a tuple, the filter by properties first because it costs less.

    Raises FilterError for anything except filters, and for two of one kind.
    """
    if given is None or given == ():
        return ()
    from rmqclient.filters.body import BodyFilter
    from rmqclient.filters.sql92 import Sql92

    filters = (given,) if isinstance(given, Sql92 | BodyFilter) else given
    if not isinstance(filters, tuple | list) or not all(isinstance(each, Sql92 | BodyFilter) for each in filters):
        raise FilterError(f"filter={given!r}: give sql(...), jmespath(...), or a tuple of one of each")
    if len({type(each) for each in filters}) < len(filters):
        raise FilterError(f"filter={given!r}: give at most one of each kind, and join two conditions by AND or &&")
    return tuple(sorted(filters, key=lambda each: isinstance(each, BodyFilter)))


def by_kind(filters: Sequence[Filter]) -> tuple[Sql92 | None, BodyFilter | None]:
    """Return the filter by properties and the one by the body; None for one that is not there."""
    if not filters:
        return None, None
    from rmqclient.filters.body import BodyFilter
    from rmqclient.filters.sql92 import Sql92

    return (
        next((each for each in filters if isinstance(each, Sql92)), None),
        next((each for each in filters if isinstance(each, BodyFilter)), None),
    )


@dataclass(slots=True)
class FilterCounts:
    """Counts of the messages whose tags match; grants count those that the kernel skips by their tags."""

    passed: int = 0
    refused_by_properties: int = 0
    refused_by_body: int = 0
    undecided: int = 0
    """Of those rejected by their bodies, how many were not JSON, too long, or of a shape the expression cannot take."""

    @property
    def looked_at(self) -> int:
        """All of them."""
        return self.passed + self.refused_by_properties + self.refused_by_body


class MessageFilter:
    """The filters of one subscription, with counts. Raises ValueError for the tags, FilterError for the filters.

    ``topic`` is the topic that is read; a retry topic is read without a filter.
    """

    def __init__(
        self,
        tags: str | None = "*",
        filter: Filter | Sequence[Filter] | None = None,  # noqa: A002 - named as the option of a handler
        *,
        topic: str = "",
    ) -> None:
        filtered = not topic.startswith(RETRY_PREFIX)
        filters = filters_of(filter) if filtered else ()
        self.tags: TagFilter = parse_tags(tags if filtered else None)
        self.by_properties, self.by_body = by_kind(filters)
        self.counts = FilterCounts()

    @property
    def tag_set(self) -> TagSet:
        """The tags and the test by which a grant takes the messages that pass; it finishes the rest in bulk.

        The grant compares the entry's hash first, then the tag in the record, and then calls :meth:`passes`.
        """
        is_more = self.by_properties is not None or self.by_body is not None
        return TagSet(self.tags.tags, self.passes if is_more else None)

    @property
    def expression(self) -> str:
        """All filters as one line of text; equal texts mean that the same messages pass."""
        sql_part = f"sql {self.by_properties.expression}" if self.by_properties is not None else ""
        body_part = f"jmespath {self.by_body.expression}" if self.by_body is not None else ""
        return "; ".join(part for part in (self.tags.expression, sql_part, body_part) if part)

    def matches(self, message: ReceivedMessage) -> bool:
        """Return whether a message passes all filters, its tag included."""
        return self.tags.matches(message.tags) and self.passes(message)

    def passes(self, message: ReceivedMessage) -> bool:
        """Return whether a message whose tag matches passes the other filters, and count it."""
        counts, properties = self.counts, self.by_properties
        if properties is not None and not properties.matches(message.some_properties(properties.names)):
            counts.refused_by_properties += 1
            return False
        if self.by_body is not None:
            try:
                matches = self.by_body.matches(message.open_body(self.by_body.most_bytes))
            except BodyUnreadable:  # for example, a body longer than the limit
                matches = None
            except NotInstalled:  # a fault of this process, not of the message: its delivery will fail
                matches = True
            if not matches:
                counts.refused_by_body += 1
                counts.undecided += matches is None
                return False
        counts.passed += 1
        return True
