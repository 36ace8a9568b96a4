"""Routes: the requests that a broker answers, the permissions that they need, and which of them write.

A room declares each request that it answers, and the broker puts the declarations into one table. Dispatch, access keys
and read-only servers use this table only: a request that no room declares is refused.

A stock 4.9 broker needs a permission for requests 10, 11, 12, 15, 34, 35, 36, 38 and 310, and ``admin`` for 17, 25,
200, 207 and 215. [PlainAccessValidator, Permission.ADMIN_CODE] Here the others need the permission of similar requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntFlag, StrEnum
from typing import Final, NamedTuple, Protocol

from rmqclient.broker.request import Handler, Request
from rmqclient.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rmqclient.remoting.codes import RequestCode


class Permission(IntFlag):
    """Permissions for a topic or a group."""

    DENY = 0
    PUB = 1
    SUB = 2


PUB, SUB, ANY = Permission.PUB, Permission.SUB, Permission.PUB | Permission.SUB


class Kind(StrEnum):
    """The object of a permission."""

    TOPIC = "topic"
    GROUP = "group"
    SERVER = "server"  # for administrators


class Need(NamedTuple):
    """A permission that a request needs. One of the bits of ``permission`` is enough."""

    kind: Kind
    name: str
    permission: Permission


Needs = Callable[[Request], Iterable[Need]]
"""Returns all needs of a request, in any order. Raises HeaderError, BodyError."""


@dataclass(frozen=True, slots=True)
class Route:
    """A request that is answered. ``slow``: its handler may wait for the disk, so a thread of the pool runs it.

    ``writes``: it changes messages, topics, groups, settings or offsets, so a read-only server refuses it.
    """

    code: RequestCode
    handler: Handler
    needs: Needs
    writes: bool
    slow: bool = False


class Room(Protocol):
    """A part of the broker that answers some requests."""

    def routes(self) -> Iterable[Route]:
        """Declare the requests that this room answers."""


def _always(*needs: Need) -> Needs:
    return lambda _: needs


NOTHING: Final = _always()
"""Any key may send the request. Each use says why."""

ASKED_BY_HANDLER: Final = _always()
"""The request does not name its topic, such as a query by log offset: the handler checks the topic that it finds.
[Request.check_topic, Request.reads_group]"""

ADMINISTRATOR: Final = _always(Need(Kind.SERVER, "", ANY))


def of_topic(permission: Permission) -> Needs:
    """Return the needs of a request with one topic."""
    return lambda request: (need_of_topic(request.fields.get("topic") or "", permission),)


def of_group(field: str = "consumerGroup") -> Needs:
    """Return the needs of a request with one group in ``field``; nothing if the field is missing."""

    def needs(request: Request) -> Iterator[Need]:
        if name := request.fields.get(field):
            yield need_of_group(name)

    return needs


def of_topic_and_group(field: str = "consumerGroup") -> Needs:
    """Return the needs of a request that reads for a group. A request without a topic is about the group alone."""

    def needs(request: Request) -> Iterator[Need]:
        if name := request.fields.get("topic"):
            yield need_of_topic(name, SUB)
        yield need_of_group(request.fields[field])

    return needs


def need_of_topic(name: str, permission: Permission) -> Need:
    """Return the need for a topic. A group's retry topic and dead letters need the permission for the group."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return need_of_group(name.removeprefix(prefix))
    return Need(Kind.TOPIC, name, permission)


def need_of_group(name: str) -> Need:
    """Return the need for a consumer group."""
    return Need(Kind.GROUP, name, SUB)
