"""The declaration of one request."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.declarations.fields import Header

COMMON: Final = "bname s, ns s, nsd b, oway b, lo b"
"""Optional fields that newer Java clients add to any request: the broker's name (4.9.5), and since 5.0 a namespace,
whether names already have it, whether it is oneway, and whether a topic is a logical one. A 4.9 broker ignores them.
[RpcRequestHeader, TopicRequestHeader]"""


class Direction(StrEnum):
    """Sender and receiver of a request."""

    TO_NAME_SERVER = "to a name server"
    TO_BROKER = "to a broker"
    TO_CLIENT = "broker to client"


class Request:
    """A request: its code, its direction, its fields and those of its answer.

    ``fields`` and ``answer`` are in the notation of :mod:`rmqclient.remoting.declarations.fields`. ``body`` and
    ``answer_body`` name the content of the bodies; empty for no body. ``note`` is a remark for readers of the table.
    """

    def __init__(
        self,
        code: RequestCode,
        direction: Direction,
        fields: str = "",
        *,
        body: str = "",
        answer: str = "",
        answer_body: str = "",
        note: str = "",
    ) -> None:
        self.code = code
        self.direction = direction
        self.body = body
        self.answer_body = answer_body
        self.note = note
        self.own = Header(f"{code.value} {code.name}", fields)
        self.header = Header(f"{code.value} {code.name}", f"{fields},{_unless_declared(fields)}")
        self.answer = Header(f"the answer to {code.value} {code.name}", answer)


def _unless_declared(fields: str) -> str:
    """Return the common fields without those that a request declares itself."""
    declared = {part.split()[0].rpartition("=")[2].removesuffix("!") for part in fields.split(",") if part.strip()}
    return ",".join(part for part in COMMON.split(",") if part.split()[0] not in declared)
