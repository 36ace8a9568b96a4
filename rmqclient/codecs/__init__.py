"""Codecs: turn the body that an application gives into bytes, and bytes into the value that a handler asks for.

=============================  ====================================  ==================================================
given to ``Message``           stored                                type of a handler's parameter that gets it back
=============================  ====================================  ==================================================
bytes, bytearray, memoryview   the same bytes                        ``bytes``, ``bytearray``, ``memoryview``
str                            UTF-8                                 ``str``
msgspec.Struct                 JSON                                  that class
pydantic model                 JSON                                  that class
dataclass, dict, list, int...  JSON                                  that type, or TypedDict, ``list[Order]``, ...
=============================  ====================================  ==================================================

A parameter without an annotation, or annotated with ReceivedMessage, ``object`` or ``Any``, gets the message itself.

What is sent comes back equal to a handler that is annotated with its type, or the send raises MessageRejected, which
names the part: :mod:`rmqclient.codecs.coming_back`. A text is stored as it stands, so an annotation that takes a text
or something else, such as ``str | None``, is refused.

The first body that needs orjson or msgspec imports it. pydantic is used only if the application has imported it. A body
cannot run code here: neither pickle nor dill is used.
"""

from __future__ import annotations

from rmqclient.codecs.annotations import annotation_of, element_of, python_function, returned_by, without_alias
from rmqclient.codecs.decoding import Decoder, decoder_of, is_plain, json_decoder_for, message_itself, value_decoder_for
from rmqclient.codecs.encoding import encode_body, encode_json, encoded

__all__ = [
    "Decoder",
    "annotation_of",
    "decoder_of",
    "element_of",
    "encode_body",
    "encode_json",
    "encoded",
    "is_plain",
    "json_decoder_for",
    "message_itself",
    "python_function",
    "returned_by",
    "value_decoder_for",
    "without_alias",
]
