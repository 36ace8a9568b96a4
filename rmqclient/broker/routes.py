"""Routes: the requests that a broker answers, what a key needs to ask them, and which of them write.

A room declares each request that it answers, and the broker puts the declarations into one table. Dispatch, access keys
and servers that only read look nowhere else: a request that no room declares is answered to nobody.

A stock broker of 4.9 asks a permission for requests 10, 11, 12, 15, 34, 35, 36, 38 and 310, and ``admin`` for 17, 25,
200, 207 and 215. [PlainAccessValidator, Permission.ADMIN_CODE] Here the others need what the like of them needs.
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
    """What may be done with a topic or a group."""

    DENY = 0
    PUB = 1
    SUB = 2


PUB, SUB, ANY = Permission.PUB, Permission.SUB, Permission.PUB | Permission.SUB


class Kind(StrEnum):
    """What a permission is for."""

    TOPIC = "topic"
    GROUP = "group"
    SERVER = "server"  # an administrator has it


class Need(NamedTuple):
    """One thing that a key must be allowed to use. One of the bits of ``permission`` is enough."""

    kind: Kind
    name: str
    permission: Permission


Needs = Callable[[Request], Iterable[Need]]
"""Returns all that a request needs, in no order. Raises HeaderError and BodyError for what cannot be read."""


@dataclass(frozen=True, slots=True)
class Route:
    """A request that is answered. ``slow``: its handler may wait for the disk, so a thread of the pool runs it.

    A server that only reads refuses what ``writes`` messages, topics, groups, settings, or how far a group is.
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
"""Any key will do. Beside it stands why."""

ASKED_BY_HANDLER: Final = _always()
"""The request does not name what it is about, such as a message by its place: the handler asks, when it has found it.
[Request.check_topic, Request.reads_group]"""

ADMINISTRATOR: Final = _always(Need(Kind.SERVER, "", ANY))


def of_topic(permission: Permission) -> Needs:
    """Return what a request needs that names one topic."""
    return lambda request: (need_of_topic(request.fields.get("topic") or "", permission),)


def of_group(field: str = "consumerGroup") -> Needs:
    """Return what a request needs that names one group in ``field``. Without a group it needs nothing."""

    def needs(request: Request) -> Iterator[Need]:
        if name := request.fields.get(field):
            yield need_of_group(name)

    return needs


def of_topic_and_group(field: str = "consumerGroup") -> Needs:
    """Return what a request needs that reads for a group. One without a topic is about the group alone."""

    def needs(request: Request) -> Iterator[Need]:
        if name := request.fields.get("topic"):
            yield need_of_topic(name, SUB)
        yield need_of_group(request.fields[field])

    return needs


def need_of_topic(name: str, permission: Permission) -> Need:
    """Return what is needed for a topic. A group's retry topic is the group itself, and so are its dead letters."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return need_of_group(name.removeprefix(prefix))
    return Need(Kind.TOPIC, name, permission)


def need_of_group(name: str) -> Need:
    """Return what is needed for a group of consumers."""
    return Need(Kind.GROUP, name, SUB)
