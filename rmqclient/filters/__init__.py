"""Filters: which messages of a topic a group wants.

=============================  ===================================  =================================================
module                         a handler's                          selects by
=============================  ===================================  =================================================
:mod:`rmqclient.filters.tag`   ``tags="a || b"``                    the tag: its hash in the entry, then in the record
:mod:`rmqclient.filters.sql92` ``filter=sql("n > 5")``              the properties, tags and keys included
:mod:`rmqclient.filters.body`  ``filter=jmespath("order.total")``   the body, if it is JSON
=============================  ===================================  =================================================

A message has to pass every filter of its handler. The cheapest runs first: the kernel skips other tags without reading
their records. A message that does not pass is finished for the group: it counts in no limit, and no handler sees it.
Retry topics are not filtered, as in RocketMQ: their messages have passed before.

A name is imported when it is first used: a server needs tags alone until a client brings an expression.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqclient.filters.message_filter import Filter, FilterCounts, MessageFilter, filters_of, jmespath, sql

__all__ = ["Filter", "FilterCounts", "MessageFilter", "filters_of", "jmespath", "sql"]

if not TYPE_CHECKING:  # or a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module("rmqclient.filters.message_filter"), name)
