"""The table of all requests: encodes and decodes headers by one declaration for each request.

::

    request(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)      a frame; checks names, types, required fields
    response_fields(RequestCode.GET_MAX_OFFSET, answer)["offset"]       an int
    request_fields(frame), response(frame, offset=7)                    the same for the side that answers
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.declarations import access, administration, groups, name_server, pop, reading, sending
from rmqclient.remoting.declarations.declaration import Request
from rmqclient.remoting.declarations.fields import Header
from rmqclient.remoting.errors import HeaderError
from rmqclient.remoting.frame import RESPONSE, Frame

__all__ = [
    "REQUESTS",
    "SECTIONS",
    "RequestCode",
    "ResponseCode",
    "request",
    "request_fields",
    "response",
    "response_field",
    "response_fields",
    "wire_names",
]

SECTIONS: Final[dict[str, tuple[Request, ...]]] = {
    "Name server": name_server.REQUESTS,
    "Sending": sending.REQUESTS,
    "Reading and offsets": reading.REQUESTS,
    "Groups": groups.REQUESTS,
    "Administration": administration.REQUESTS,
    "Access": access.REQUESTS,
    "POP": pop.REQUESTS,
}
"""The requests in the order of the documentation."""

REQUESTS: Final[dict[int, Request]] = {each.code.value: each for section in SECTIONS.values() for each in section}


def request(code: RequestCode, /, body: bytes = b"", **fields: object) -> Frame:
    """Return a request. ``fields`` have RocketMQ's long names; None means an absent field.

    Raises :class:`HeaderError`, which names the request, the field and the value, for a missing required field, an
    unknown field, or a value of a wrong type.
    """
    return Frame(code.value, _declared(code).header.write(fields), body)


def request_fields(frame: Frame) -> dict[str, Any]:
    """Return the typed fields of a request by their long names, without unknown fields.

    Raises :class:`HeaderError` for a missing required field, an invalid text, and an unknown request.
    """
    return _declared(frame.code).header.read(frame.fields)


def response(
    request: Frame, /, code: int = ResponseCode.SUCCESS, body: bytes = b"", remark: str | None = None, **fields: object
) -> Frame:
    """Return the answer to a request, in its serialization and with its ``opaque``.

    Raises :class:`HeaderError` as :func:`request`. Required fields may be absent unless the answer is a success.
    """
    known = REQUESTS.get(request.code)
    header = known.answer if known is not None else Header(f"the answer to {request.code}", "")
    return Frame(
        int(code),
        header.write(fields, is_partial=code != ResponseCode.SUCCESS),
        body,
        request.opaque,
        RESPONSE,
        remark,
        serialization=request.serialization,
    )


def response_fields(code: RequestCode, frame: Frame) -> dict[str, Any]:
    """Return the typed fields of the answer to a request ``code``, by their names.

    Raises :class:`HeaderError` for a missing required field and an invalid text. Only an answer for success has every
    required field.
    """
    return _declared(code).answer.read(frame.fields)


def response_field(code: RequestCode, frame: Frame, name: str) -> Any:
    """Return one typed field of the answer to a request ``code``: faster than :func:`response_fields`.

    Raises :class:`HeaderError` if the field is missing or invalid.
    """
    return _declared(code).answer.read_one(frame.fields, name)


def wire_names(code: RequestCode, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names on the wire of some fields of a request, for a sender that writes their texts itself."""
    known = {field.name: field.wire_name for field in _declared(code).header.fields}
    return tuple(known[name] for name in names)


def _declared(code: int) -> Request:
    known = REQUESTS.get(code)
    if known is None:
        raise HeaderError(f"request {code} is not in the table of requests")
    return known
