"""Names: lists of topics and of groups, and tables of strings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from rmqclient.remoting.bodies.body import Body


@dataclass(frozen=True, slots=True)
class KVTable(Body):
    """Strings by name: a broker's runtime info (28), a namespace of a name server (219). [KVTable]"""

    table: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicList(Body):
    """Topics, in any order: the answer to requests 206, 224, 304, 305 and 311 to 313. [TopicList]"""

    topics: Annotated[tuple[str, ...], "topicList"] = ()
    broker_address: Annotated[str | None, "brokerAddr"] = None
    """Of request 304: a broker to ask by request 305."""


@dataclass(frozen=True, slots=True)
class GroupList(Body):
    """Groups that consume a topic: the answer to request 300. [GroupList]"""

    groups: Annotated[tuple[str, ...], "groupList"] = ()
