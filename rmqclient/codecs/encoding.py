"""Encoding: from what an application gives as a body to bytes that come back equal.

Plain JSON values are written by orjson, and nothing is looked at twice. Any other value is decoded again, as a handler
that is annotated with its type would do, and compared: see :mod:`rmqclient.codecs.coming_back`.
"""

# ruff: noqa: PLC0415 - orjson and msgspec are imported where they are needed: who only sends bytes never needs them

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from rmqclient.message import Message
from rmqclient.store.errors import MessageRejected


def encode_body(value: object) -> bytes:
    """Return the bytes to store for ``value``.

    Sets and named tuples become arrays, and bytes inside other values become base64.

    Raises MessageRejected, which names the type, if the value cannot be encoded, or does not come back equal: the
    error then names the part, such as ``.items[2].token``. So are NaN and infinity, which JSON lacks.
    """
    if isinstance(value, bytes):
        return bytes(value)
    return _encoded_by(_encode, value)


def encode_json(value: object) -> bytes:
    """Return the JSON of ``value``, also of bytes and ``str``; else as :func:`encode_body`. Raises MessageRejected."""
    return _encoded_by(_encode_json, value)


def encoded(message: Message) -> Message:
    """Return a message with its body as bytes. Raises MessageRejected."""
    return message if type(message.body) is bytes else message.with_body(encode_body(message.body), 0)


def _encoded_by(encode: Callable[[object], bytes], value: object) -> bytes:
    try:
        return encode(value)
    except Exception as error:
        kind = type(value)
        raise MessageRejected(
            f"a body of type {kind.__module__}.{kind.__qualname__} cannot be encoded: {error}; "
            "give bytes, str, or a value that JSON can hold"
        ) from error


def _encode(value: object) -> bytes:
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return str.encode(value) if isinstance(value, str) else _encode_json(value)


def _encode_json(value: object) -> bytes:
    import orjson

    if isinstance(value, _PLAIN):
        try:
            body = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS)
        except orjson.JSONEncodeError:
            pass
        else:
            if b"null" in body and orjson.loads(body) != value:
                _check(value, partial(_json, by_alias=True))
            return body
    try:
        return _json_that_comes_back(value, by_alias=True)
    except Exception:
        if "pydantic" not in sys.modules:
            raise
        try:  # a model that is read by its fields' names, and has other names for writing
            return _json_that_comes_back(value, by_alias=False)
        except Exception:  # noqa: BLE001, S110 - the first error says more
            pass
        raise


def _json_that_comes_back(value: object, *, by_alias: bool) -> bytes:
    encode = partial(_json, by_alias=by_alias)
    try:
        body = encode(value)
    except Exception as error:
        from rmqclient.codecs.coming_back import part_that_fails

        if part := part_that_fails(value, encode):
            raise ValueError(f"{part}: {error}") from error
        raise
    _check(value, encode, body)
    return body


def _check(value: object, encode: Callable[[object], bytes], body: bytes | None = None) -> None:
    from rmqclient.codecs.coming_back import check_comes_back  # who sends only plain values never needs it

    check_comes_back(value, encode, body)


def _json(value: object, *, by_alias: bool) -> bytes:
    import orjson

    plainer = partial(_plainer, by_alias=by_alias)
    if (msgspec := sys.modules.get("msgspec")) is not None and isinstance(value, msgspec.Struct):
        encoded: bytes = msgspec.json.encode(value, enc_hook=plainer)
        return encoded
    if (serializer := pydantic_serializer(value)) is not None:
        made: bytes = serializer.to_json(value, by_alias=by_alias, round_trip=True, warnings=False)
        return made
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_DATACLASS
    try:
        return orjson.dumps(value, default=plainer, option=options)
    except orjson.JSONEncodeError:
        # Keys that are not str: the option costs 50 % for every dict, so only the values that need it pay for it.
        return orjson.dumps(value, default=plainer, option=options | orjson.OPT_NON_STR_KEYS)


def _plainer(value: object, *, by_alias: bool) -> object:
    """Convert a value of a type that orjson does not know one step towards JSON. Raises TypeError."""
    import msgspec

    if (serializer := pydantic_serializer(value)) is not None:
        return serializer.to_python(value, mode="json", by_alias=by_alias, round_trip=True, warnings=False)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return list(value) if isinstance(value, (tuple, set, frozenset)) else msgspec.to_builtins(value)


def pydantic_serializer(value: object) -> Any:
    """Return what writes a pydantic model or dataclass; None for any other value."""
    return getattr(type(value), "__pydantic_serializer__", None) if "pydantic" in sys.modules else None


_PLAIN = (dict, list, int, float, type(None), tuple)
"""What may be all JSON: the first try is for these."""
