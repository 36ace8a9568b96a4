"""Filters: which messages of a topic a group wants.

=============================  ======================  ==================================================
module                         a handler's             selects by
=============================  ======================  ==================================================
:mod:`rmqclient.filters.tag`   ``tags="a || b"``       the tag: its hash in the entry, then in the record
:mod:`rmqclient.filters.sql92` ``where="n > 5"``       the properties, tags and keys included
:mod:`rmqclient.filters.body`  ``json="order.total"``  the body, where it is JSON
=============================  ======================  ==================================================

A message has to pass all that a handler names, the cheapest first: the kernel skips other tags without reading their
records. A message that does not pass is finished for the group: it counts in no limit, and no handler sees it. Retry
topics are not filtered, as in RocketMQ: what is in them has passed before.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqclient.filters.body import MAX_BODY_BYTES, BodyFilter
from rmqclient.filters.sql92 import Sql92
from rmqclient.filters.tag import TagFilter, parse_tags
from rmqclient.message import ReceivedMessage
from rmqclient.names import RETRY_PREFIX
from rmqclient.store import TagSet
from rmqclient.store.errors import BodyUnreadable, NotInstalled


@dataclass(slots=True)
class FilterCounts:
    """What became of the messages whose tags match; grants count those that the kernel skips by their tags."""

    passed: int = 0
    refused_by_properties: int = 0
    refused_by_body: int = 0
    undecided: int = 0
    """Of those refused by their bodies: no JSON, too long, or nothing that the expression can be applied to."""

    @property
    def looked_at(self) -> int:
        """All of them."""
        return self.passed + self.refused_by_properties + self.refused_by_body


class MessageFilter:
    """What a handler asks for, compiled once. Raises FilterError, and ValueError for the tags.

    ``topic`` is the topic that is read; a retry topic is read without a filter.
    """

    def __init__(self, tags: str | None = "*", where: str = "", json: str = "", *, topic: str = "") -> None:
        filtered = not topic.startswith(RETRY_PREFIX)
        self.tags: TagFilter = parse_tags(tags if filtered else None)
        self.where = Sql92(where) if where and filtered else None
        self.json = BodyFilter(json) if json and filtered else None
        self.counts = FilterCounts()

    @property
    def tag_set(self) -> TagSet:
        """What a grant selects by: it takes only what passes, and finishes the rest in bulk.

        The entry's hash is compared first, then the tag in the record, and then :meth:`passes` is called.
        """
        return TagSet(self.tags.tags, self.passes if self.where is not None or self.json is not None else None)

    @property
    def expression(self) -> str:
        """What the filter says, as one line: equal ones take the same messages."""
        where = f"where {self.where.expression}" if self.where is not None else ""
        json = f"json {self.json.expression}" if self.json is not None else ""
        return "; ".join(part for part in (self.tags.expression, where, json) if part)

    def matches(self, message: ReceivedMessage) -> bool:
        """Tell whether a message passes, its tag included."""
        return self.tags.matches(message.tags) and self.passes(message)

    def passes(self, message: ReceivedMessage) -> bool:
        """Tell whether a message whose tag matches passes the rest, and count it."""
        counts = self.counts
        if self.where is not None and not self.where.matches(message.some_properties(self.where.names)):
            counts.refused_by_properties += 1
            return False
        if self.json is not None:
            try:
                matches = self.json.matches(message.open_body(MAX_BODY_BYTES))
            except BodyUnreadable:  # longer than that, for one
                matches = None
            except NotInstalled:  # a fault of this process and not of the message: its delivery will fail
                matches = True
            if not matches:
                counts.refused_by_body += 1
                counts.undecided += matches is None
                return False
        counts.passed += 1
        return True
