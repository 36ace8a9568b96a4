"""Handler: a function, which messages it gets, and how it gets them."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from rmqclient.allocation import Strategy, name_of
from rmqclient.failures.retry import RetryPolicy

Start: TypeAlias = Literal["earliest", "latest"] | datetime.datetime
"""Where a new group begins in a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function, and which messages it gets. Made by :meth:`rmqclient.app.App.handler`, which explains the fields."""

    topic: str
    group: str
    tags: str
    """Normalised, as :attr:`rmqclient.filters.tag.TagFilter.expression`."""

    where: str = ""
    """SQL92 over the properties; empty for every message."""

    json: str = ""
    """JMESPath over the JSON body; empty for every message."""

    threads: int
    """How many messages it is given at the same time in one process."""

    ordered: bool | Literal["key"] = False
    """One message at a time per queue, or per sharding key."""

    batch: int = 1
    """Messages per call; above 1 the function takes a list."""

    linger_ms: int = 0
    """How long a batch waits to become full."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    start: Start = "earliest"
    broadcast: bool = False
    """Every member of the group gets every message."""

    replies: bool = False
    """What the function returns is sent as the reply when the message is a request."""

    allocation: str | Strategy = "averaged"
    """How the members share the queues: a name of :mod:`rmqclient.allocation`, or a function."""

    function: Callable[..., Any]
    """Plain or ``async``; takes one argument, made by :func:`rmqclient.codecs.decoder_for`."""

    @property
    def subscription(self) -> str:
        """What every member of the group must have the same, as text: what it takes, and how the members share it."""
        parts = [f"tags {self.tags}"]
        parts += [f"where {self.where!r}"] if self.where else []
        parts += [f"json {self.json!r}"] if self.json else []
        parts += [f"ordered {'by key' if self.ordered == 'key' else 'by queue'}"] if self.ordered else []
        parts += ["broadcast"] if self.broadcast else []
        return "; ".join([*parts, f"allocation {name_of(self.allocation)}"])
