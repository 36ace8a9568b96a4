"""The table of all requests: encodes, decodes and documents headers by one declaration for each request.

::

    request(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)      a frame; checks names, types, required fields
    response_fields(RequestCode.GET_MAX_OFFSET, answer)["offset"]       an int
    request_fields(frame), response(frame, offset=7)                    the same for the side that answers

``python -m rmqclient.remoting.table`` prints the table as a page of Markdown.
"""

from __future__ import annotations

from rmqclient.remoting.codes import VERSION, Language, RequestCode, ResponseCode
from rmqclient.remoting.table.headers import (
    request,
    request_fields,
    response,
    response_field,
    response_fields,
    wire_names,
)

__all__ = [
    "VERSION",
    "Language",
    "RequestCode",
    "ResponseCode",
    "request",
    "request_fields",
    "response",
    "response_field",
    "response_fields",
    "wire_names",
]
